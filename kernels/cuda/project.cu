/* project_f16, project_f32: out = residual + a . w^T, the output and down projections.
 *
 * a f32[T,K], w [D,K], residual and out f32[T,D], which may be the same buffer.
 *
 * Grid (ceil(T / TILE), row blocks), N_THREADS threads: a block stages its tokens in shared
 * memory, a warp takes one row of w (two where the tokens are many, to reuse what is staged).
 * Token tiles run along x, so that blocks that start together read the same rows.
 */
#include "common.cuh"

template <typename W, int TT, int R>
static __device__ __forceinline__ void project(const float *a, const W *w, const float *residual,
                                               float *out, int T, int K, int D)
{
    const int first_token = blockIdx.x * TT, lane = threadIdx.x % 32;
    const int n_tokens = min(TT, T - first_token);
    if (n_tokens <= 0) /* guard: the same for the whole block */
        return;
    const tile<W> in = {a + (size_t)first_token * K, nullptr, nullptr, n_tokens, K,
                        stride_of<TT>(K), dynamic_shared()};
    bool fresh = true;
    for (int base = blockIdx.y * N_WARPS * R; base < D; base += gridDim.y * N_WARPS * R) {
        const int first = base + threadIdx.x / 32 * R;
        const W *row[R];
        float dots[R][TT];
#pragma unroll
        for (int r = 0; r < R; r++)
            row[r] = w + (size_t)min(first + r, D - 1) * K;
        row_dots<W, TT, R>(in, row, first < D, fresh, dots);
        fresh = false;
#pragma unroll
        for (int r = 0; r < R; r++)
            if (lane < n_tokens && first + r < D) {
                const size_t at = (size_t)(first_token + lane) * D + first + r;
                out[at] = residual[at] + pick(dots[r], lane);
            }
    }
}

template <typename W>
static __device__ __forceinline__ void project_any(const float *a, const W *w,
                                                   const float *residual, float *out, int T, int K,
                                                   int D)
{
    if (T == 1)
        project<W, 1, 1>(a, w, residual, out, T, K, D);
    else
        project<W, TILE, 2>(a, w, residual, out, T, K, D);
}

extern "C" __global__ void __launch_bounds__(N_THREADS, MIN_BLOCKS)
project_f16(const float *a, const __half *w, const float *residual, float *out,
            int T, int K, int D,
            fault_record *fault, stamp_record *stamp, int slot)
{
    stamp_begin(stamp);
    project_any(a, w, residual, out, T, K, D);
    stamp_end(stamp);
}

extern "C" __global__ void __launch_bounds__(N_THREADS, MIN_BLOCKS)
project_f32(const float *a, const float *w, const float *residual, float *out,
            int T, int K, int D,
            fault_record *fault, stamp_record *stamp, int slot)
{
    stamp_begin(stamp);
    project_any(a, w, residual, out, T, K, D);
    stamp_end(stamp);
}
