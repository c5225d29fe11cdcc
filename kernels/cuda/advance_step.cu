/* advance_step: counts the steps of a run on the device.
 *
 * Launched once before the first kernel of each step, one thread.  Kernels index their stamps by the counter,
 * so that the replays of a captured graph, whose arguments never change, do not overwrite each
 * other.
 */

extern "C" __global__ void advance_step(long long *step)
{
    *step += 1;
}
