/* advance_step: begins a step of a run on the device.
 *
 * Launched once before the first kernel of each step, one block.  A launch stamps its begin and end
 * at one place whatever the step, since the arguments of a captured graph never change; here the
 * stamps of the step before go to their row of a ring, and the places are cleared, so that a kernel
 * that does not run leaves zeros.
 */

typedef struct {
    ulonglong2 *row;          /* of the ring, for the step that runs */
    ulonglong2 *first, *last; /* rows of the ring */
    long long step;           /* that runs, from 0; -1 before the first */
} counter_record;

/* stamps: begin and end of n_slots launches, as long as a row. */
extern "C" __global__ void advance_step(counter_record *counter, ulonglong2 *stamps, int n_slots)
{
    const counter_record now = *counter;
    for (int i = threadIdx.x; i < n_slots; i += blockDim.x) {
        now.row[i] = stamps[i];
        stamps[i] = ulonglong2{0, 0};
    }
    __syncthreads(); /* every thread has read the counter */
    if (threadIdx.x == 0) {
        counter->row = now.row == now.last ? now.first : now.row + n_slots;
        counter->step = now.step + 1;
    }
}
