/* gate_up_f16, gate_up_f32: RMSNorm, then h = silu(x . w_gate^T) * (x . w_up^T).
 *
 * x f32[T,D], norm [D], w_gate and w_up [F,D], h f32[T,F].
 *
 * Grid (ceil(T / TILE), row blocks), N_THREADS threads: every block norms its tokens itself (they
 * lie in L2, and a kernel of its own would cost a launch), a warp takes a row of both matrices.
 */
#include "common.cuh"

template <typename W, int TT>
static __device__ __forceinline__ void gate_up(const float *x, const W *norm, const W *w_gate,
                                               const W *w_up, float *h, int T, int D, int F,
                                               float eps)
{
    __shared__ float scale[TT];
    const int first_token = blockIdx.x * TT, lane = threadIdx.x % 32;
    const int n_tokens = min(TT, T - first_token);
    if (n_tokens <= 0) /* guard: the same for the whole block */
        return;
    x += (size_t)first_token * D;
    rms_scales<TT>(x, n_tokens, D, eps, scale);
    const tile<W> in = {x, norm, scale, n_tokens, D, stride_of<TT>(D), dynamic_shared()};
    bool fresh = true;
    for (int base = blockIdx.y * N_WARPS; base < F; base += gridDim.y * N_WARPS) {
        const int i = base + threadIdx.x / 32;
        const size_t at = (size_t)min(i, F - 1) * D;
        const W *const row[2] = {w_gate + at, w_up + at};
        float dots[2][TT];
        row_dots<W, TT, 2>(in, row, i < F, fresh, dots);
        fresh = false;
        if (lane < n_tokens && i < F) {
            const float gate = pick(dots[0], lane);
            const float silu = gate / (1.0f + expf(-gate));
            h[(size_t)(first_token + lane) * F + i] = silu * pick(dots[1], lane);
        }
    }
}

template <typename W>
static __device__ __forceinline__ void gate_up_any(const float *x, const W *norm, const W *w_gate,
                                                   const W *w_up, float *h, int T, int D, int F,
                                                   float eps)
{
    if (T == 1)
        gate_up<W, 1>(x, norm, w_gate, w_up, h, T, D, F, eps);
    else
        gate_up<W, TILE>(x, norm, w_gate, w_up, h, T, D, F, eps);
}

extern "C" __global__ void __launch_bounds__(N_THREADS, MIN_BLOCKS)
gate_up_f16(const float *x, const __half *norm, const __half *w_gate, const __half *w_up, float *h,
            int T, int D, int F, float eps,
            fault_record *fault, stamp_record *stamp, int slot)
{
    stamp_begin(stamp);
    gate_up_any(x, norm, w_gate, w_up, h, T, D, F, eps);
    stamp_end(stamp);
}

extern "C" __global__ void __launch_bounds__(N_THREADS, MIN_BLOCKS)
gate_up_f32(const float *x, const float *norm, const float *w_gate, const float *w_up, float *h,
            int T, int D, int F, float eps,
            fault_record *fault, stamp_record *stamp, int slot)
{
    stamp_begin(stamp);
    gate_up_any(x, norm, w_gate, w_up, h, T, D, F, eps);
    stamp_end(stamp);
}
