/* qkv_f16, qkv_f32: RMSNorm, the three projections, rotary positions, and the write to the caches.
 *
 * x f32[T,D], norm [D], wq [H*S,D], wk and wv [G*S,D], pos i32[T], k_idxs and v_idxs i64[T] rows
 * of the caches, q f32[T,H*S], k_cache and v_cache f32[C,G*S].
 *
 * Grid (ceil(T / TILE), row blocks), N_THREADS threads: a warp takes the two rows that rotate
 * together, so that the rotation needs no second pass; of wv any two neighbours.  A token whose
 * position or cache row is out of range is left out.
 *
 * A position times a frequency is an angle of up to 8191 radians, of which a float would keep
 * three digits.  Frequencies are kept as 64-bit fractions of a turn: the product wraps at whole
 * turns by itself, and its upper half is the angle, exact to 2^-32 turns.
 */
#include "common.cuh"

/* theta^(-2 pair / S) radians, as a fraction of a turn times 2^64. */
static __device__ __forceinline__ unsigned long long turn_fraction(float theta, int pair, int S)
{
    const double power = exp2(-2.0 * pair / S * log2((double)theta));
    return (unsigned long long)(power * (0.15915494309189533577 * 18446744073709551616.0));
}

template <typename W, int TT>
static __device__ __forceinline__ void
qkv(const float *x, const W *norm, const W *wq, const W *wk, const W *wv, const int *pos,
    const long long *k_idxs, const long long *v_idxs, float *q, float *k_cache, float *v_cache,
    int T, int D, int H, int G, int S, int C, float eps, float theta, int pairing,
    fault_record *fault, int slot)
{
    __shared__ float scale[TT];
    __shared__ int position[TT]; /* -1: refused */
    __shared__ int k_row[TT], v_row[TT];
    __shared__ unsigned long long turns[MAX_SIZE / 2];
    const int first_token = blockIdx.x * TT, lane = threadIdx.x % 32, pairs = S / 2;
    const int n_tokens = min(TT, T - first_token);
    if (n_tokens <= 0) /* guard: the same for the whole block */
        return;
    if (threadIdx.x < n_tokens) {
        const int t = first_token + threadIdx.x;
        const int p = load_once(pos + t);
        const long long k = load_once(k_idxs + t), v = load_once(v_idxs + t);
        const bool fits = in_range(p, C - 1, FAULT_POSITION, fault, slot)
                          && in_range(k, C - 1, FAULT_K_ROW, fault, slot)
                          && in_range(v, C - 1, FAULT_V_ROW, fault, slot);
        position[threadIdx.x] = fits ? p : -1;
        k_row[threadIdx.x] = fits ? (int)k : 0;
        v_row[threadIdx.x] = fits ? (int)v : 0;
    } else if (N_THREADS - 1 - (int)threadIdx.x < pairs) { /* other warps than the indices' */
        const int pair = N_THREADS - 1 - threadIdx.x;
        turns[pair] = turn_fraction(theta, pair, S);
    }
    x += (size_t)first_token * D;
    rms_scales<TT>(x, n_tokens, D, eps, scale); /* has the barrier for the arrays above */
    const tile<W> in = {x, norm, scale, n_tokens, D, stride_of<TT>(D), dynamic_shared()};
    const int n_rotated = (H + G) * pairs, n_units = n_rotated + G * pairs;
    bool fresh = true;
    for (int base = blockIdx.y * N_WARPS; base < n_units; base += gridDim.y * N_WARPS) {
        const int unit = base + threadIdx.x / 32, known = min(unit, n_units - 1);
        const bool rotated = known < n_rotated;
        const int head = known / pairs, pair = known % pairs; /* query heads, key heads */
        const W *w = rotated ? (head < H ? wq : wk) : wv;
        int first, second;
        if (rotated) {
            first = (head < H ? head : head - H) * S + (pairing ? 2 * pair : pair);
            second = first + (pairing ? 1 : pairs);
        } else {
            first = (known - n_rotated) * 2;
            second = first + 1;
        }
        const W *const row[2] = {w + (size_t)first * D, w + (size_t)second * D};
        float dots[2][TT];
        row_dots<W, TT, 2>(in, row, unit < n_units, fresh, dots);
        fresh = false;
        if (lane >= n_tokens || unit >= n_units || position[lane] < 0)
            continue; /* to the next barrier, with the others */
        float a = pick(dots[0], lane), b = pick(dots[1], lane);
        float *out = v_cache + (size_t)v_row[lane] * (G * S);
        if (rotated) {
            const unsigned long long angle = (unsigned long long)position[lane] * turns[pair];
            float sine, cosine;
            sincospif((float)(int)(angle >> 32) * 4.656612873e-10f, &sine, &cosine); /* 2^-31 */
            const float turned = a * cosine - b * sine;
            b = a * sine + b * cosine;
            a = turned;
            out = head < H ? q + (size_t)(first_token + lane) * (H * S)
                           : k_cache + (size_t)k_row[lane] * (G * S);
        }
        out[first] = a;
        out[second] = b;
    }
}

template <typename W>
static __device__ __forceinline__ void
qkv_any(const float *x, const W *norm, const W *wq, const W *wk, const W *wv, const int *pos,
        const long long *k_idxs, const long long *v_idxs, float *q, float *k_cache, float *v_cache,
        int T, int D, int H, int G, int S, int C, float eps, float theta, int pairing,
        fault_record *fault, int slot)
{
    if (T == 1)
        qkv<W, 1>(x, norm, wq, wk, wv, pos, k_idxs, v_idxs, q, k_cache, v_cache, T, D, H, G, S, C,
                  eps, theta, pairing, fault, slot);
    else
        qkv<W, TILE>(x, norm, wq, wk, wv, pos, k_idxs, v_idxs, q, k_cache, v_cache, T, D, H, G, S,
                     C, eps, theta, pairing, fault, slot);
}

extern "C" __global__ void __launch_bounds__(N_THREADS, MIN_BLOCKS)
qkv_f16(const float *x, const __half *norm, const __half *wq, const __half *wk, const __half *wv,
        const int *pos, const long long *k_idxs, const long long *v_idxs,
        float *q, float *k_cache, float *v_cache,
        int T, int D, int H, int G, int S, int C, float eps, float theta, int pairing,
        fault_record *fault, stamp_record *stamp, int slot)
{
    stamp_begin(stamp);
    qkv_any(x, norm, wq, wk, wv, pos, k_idxs, v_idxs, q, k_cache, v_cache, T, D, H, G, S, C, eps,
            theta, pairing, fault, slot);
    stamp_end(stamp);
}

extern "C" __global__ void __launch_bounds__(N_THREADS, MIN_BLOCKS)
qkv_f32(const float *x, const float *norm, const float *wq, const float *wk, const float *wv,
        const int *pos, const long long *k_idxs, const long long *v_idxs,
        float *q, float *k_cache, float *v_cache,
        int T, int D, int H, int G, int S, int C, float eps, float theta, int pairing,
        fault_record *fault, stamp_record *stamp, int slot)
{
    stamp_begin(stamp);
    qkv_any(x, norm, wq, wk, wv, pos, k_idxs, v_idxs, q, k_cache, v_cache, T, D, H, G, S, C, eps,
            theta, pairing, fault, slot);
    stamp_end(stamp);
}
