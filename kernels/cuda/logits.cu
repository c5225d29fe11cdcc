/* logits_f16, logits_f32: RMSNorm of one row of x, then logits = row . w^T, written twice.
 *
 * x f32[T,D], out_ids i32[1] the row, pos i32[T], norm [D], w [V,D], logits f32[V],
 * tap f32[C,V]: the same logits at the row of the token's position.
 *
 * Grid (1, row blocks), N_THREADS threads, a warp per row of w.  The grid is capped: a block walks
 * over many rows, since it norms the token once whatever their number.
 */
#include "common.cuh"

template <typename W>
static __device__ __forceinline__ void logits_of(const float *x, const int *out_ids,
                                                 const int *pos, const W *norm, const W *w,
                                                 float *logits, float *tap, int T, int D, int V,
                                                 int C, float eps, fault_record *fault, int slot)
{
    __shared__ float scale[1];
    __shared__ int place_of[2]; /* row of x, row of the tap; -1: refused */
    if (threadIdx.x == 0) {
        place_of[0] = -1;
        const int token = load_once(out_ids);
        if (in_range(token, T - 1, FAULT_OUT_ID, fault, slot)) {
            const int position = load_once(pos + token);
            if (in_range(position, C - 1, FAULT_POSITION, fault, slot)) {
                place_of[0] = token;
                place_of[1] = position;
            }
        }
    }
    __syncthreads();
    if (place_of[0] < 0) /* guard: the same for the whole block */
        return;
    x += (size_t)place_of[0] * D;
    tap += (size_t)place_of[1] * V;
    rms_scales<1>(x, 1, D, eps, scale);
    const tile<W> in = {x, norm, scale, 1, D, stride_of<1>(D), dynamic_shared()};
    bool fresh = true;
    for (int base = blockIdx.y * N_WARPS; base < V; base += gridDim.y * N_WARPS) {
        const int i = base + threadIdx.x / 32;
        const W *const row[1] = {w + (size_t)min(i, V - 1) * D};
        float dots[1][1];
        row_dots<W, 1, 1>(in, row, i < V, fresh, dots);
        fresh = false;
        if (threadIdx.x % 32 == 0 && i < V) {
            logits[i] = dots[0][0];
            tap[i] = dots[0][0];
        }
    }
}

extern "C" __global__ void __launch_bounds__(N_THREADS, MIN_BLOCKS)
logits_f16(const float *x, const int *out_ids, const int *pos, const __half *norm, const __half *w,
           float *logits, float *tap,
           int T, int D, int V, int C, float eps,
           fault_record *fault, stamp_record *stamp, int slot)
{
    stamp_begin(stamp);
    logits_of(x, out_ids, pos, norm, w, logits, tap, T, D, V, C, eps, fault, slot);
    stamp_end(stamp);
}

extern "C" __global__ void __launch_bounds__(N_THREADS, MIN_BLOCKS)
logits_f32(const float *x, const int *out_ids, const int *pos, const float *norm, const float *w,
           float *logits, float *tap,
           int T, int D, int V, int C, float eps,
           fault_record *fault, stamp_record *stamp, int slot)
{
    stamp_begin(stamp);
    logits_of(x, out_ids, pos, norm, w, logits, tap, T, D, V, C, eps, fault, slot);
    stamp_end(stamp);
}
