/* argmax: the number of the greatest logit; of equal ones the first; 0 if all are NaN.
 *
 * logits f32[V], token i32[1].
 *
 * One block of 1024 threads: it reads 4 bytes per logit and writes 4 bytes in all, and a second
 * launch or a grid-wide barrier would cost more than the longer loop.
 */
#include "common.cuh"

#define N_READERS 1024

/* Whether a number of value `a` comes before one of value `b`; a negative number is none. */
static __device__ __forceinline__ bool is_before(float a, int index_a, float b, int index_b)
{
    if (index_a < 0 || index_b < 0)
        return index_a >= 0;
    return a > b || (a == b && index_a < index_b);
}

static __device__ __forceinline__ void fold_warp(float &top, int &best)
{
    for (int step = 16; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, top, step);
        const int index = __shfl_xor_sync(0xffffffffu, best, step);
        if (is_before(other, index, top, best)) {
            top = other;
            best = index;
        }
    }
}

extern "C" __global__ void __launch_bounds__(N_READERS)
argmax(const float *logits, int *token,
       int V,
       fault_record *fault, stamp_record *stamp, int slot)
{
    __shared__ float tops[N_READERS / 32];
    __shared__ int bests[N_READERS / 32];
    stamp_begin(stamp);
    float top = -INFINITY;
    int best = -1;
#pragma unroll 4
    for (int i = threadIdx.x; i < V; i += N_READERS) {
        const float value = logits[i];
        if (value > top || (best < 0 && value == top)) { /* never true of NaN */
            top = value;
            best = i;
        }
    }
    fold_warp(top, best);
    if (threadIdx.x % 32 == 0) {
        tops[threadIdx.x / 32] = top;
        bests[threadIdx.x / 32] = best;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        top = tops[threadIdx.x];
        best = bests[threadIdx.x];
        fold_warp(top, best);
        if (threadIdx.x == 0)
            token[0] = max(best, 0);
    }
    stamp_end(stamp);
}
