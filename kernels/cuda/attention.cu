/* attention: one head of one token over the rows of the KV cache that its mask shows.
 *
 * q f32[T,H*S], k_cache and v_cache f32[C,G*S], mask f16[T,C] (minus infinity hides a row),
 * out f32[T,H*S].  H / G query heads share a key and value head.
 *
 * Grid (H, T), N_THREADS threads.  Three passes with the scores in shared memory: mask and last
 * visible row; scores, 8 lanes to a key row and 4 rows of each in flight; values, a group of
 * threads to a row.  Which thread adds a row depends on the row's number and S alone, and a hidden
 * row adds nothing: the result is the same for any T and C.  Hidden rows may never have been
 * written, so that what is read there is dropped, not multiplied by zero.
 *
 * Shared memory: PARTIAL floats, then C scores.
 */
#include "common.cuh"

#define PARTIAL 1024   /* floats of the groups' sums: N_THREADS threads, 4 columns each */
#define LANES 8        /* that share a key row */
#define AT_ONCE 4      /* key rows that a lane has in flight */
#define MAX_GROUPS 32  /* sums are folded one after the other */
#define N_KEYS (N_THREADS / LANES)
#define MASKED 0xfc00u /* f16 bits of minus infinity */

/* Greatest and sum over the block, the same bits in every thread. */
static __device__ __forceinline__ float block_max(float value, float *part)
{
    value = warp_max(value);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = value;
    __syncthreads();
    value = part[0];
    for (int w = 1; w < N_WARPS; w++)
        value = fmaxf(value, part[w]);
    __syncthreads(); /* `part` may be written again */
    return value;
}

static __device__ __forceinline__ float block_sum(float value, float *part)
{
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = value;
    __syncthreads();
    value = part[0];
    for (int w = 1; w < N_WARPS; w++)
        value += part[w];
    __syncthreads();
    return value;
}

/* score[j] = what the mask adds to row j; returns the number of the last visible row, or -1. */
static __device__ __forceinline__ int read_mask(const unsigned short *mask, int C, float *score,
                                                float *part)
{
    int last = -1;
    for (int j = threadIdx.x; j < C; j += N_THREADS) {
        const unsigned short bits = mask[j];
        score[j] = __half2float(__ushort_as_half(bits));
        if (bits != MASKED)
            last = j;
    }
    return (int)block_max((float)last, part); /* exact: C is below 2^24 */
}

/* score[j] += scale * (q . row j of k) for the n rows from k on. */
static __device__ __forceinline__ void add_scores(const float *q, const float *k, size_t stride,
                                                  int n, int S, float scale, float *score)
{
    const int part = threadIdx.x % LANES;
    const bool vectors = S % 4 == 0 && is_aligned(k);
    for (int base = 0; base < n; base += N_KEYS * AT_ONCE) { /* all lanes: they shuffle below */
        const int key = base + threadIdx.x / LANES;
        const float *row[AT_ONCE];
        float dot[AT_ONCE] = {};
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) /* beyond the end the last row again, and dropped */
            row[u] = k + min(key + u * N_KEYS, n - 1) * stride;
        if (vectors) {
            for (int i = part * 4; i < S; i += LANES * 4) {
                const float4 a = *(const float4 *)(q + i);
#pragma unroll
                for (int u = 0; u < AT_ONCE; u++) {
                    const float4 b = *(const float4 *)(row[u] + i);
                    dot[u] = fmaf(a.x, b.x, dot[u]);
                    dot[u] = fmaf(a.y, b.y, dot[u]);
                    dot[u] = fmaf(a.z, b.z, dot[u]);
                    dot[u] = fmaf(a.w, b.w, dot[u]);
                }
            }
        } else {
            for (int i = part; i < S; i += LANES)
#pragma unroll
                for (int u = 0; u < AT_ONCE; u++)
                    dot[u] = fmaf(q[i], row[u][i], dot[u]);
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            for (int step = LANES / 2; step > 0; step /= 2)
                dot[u] += __shfl_xor_sync(0xffffffffu, dot[u], step);
            const int j = key + u * N_KEYS;
            if (part == 0 && j < n && score[j] != -INFINITY)
                score[j] += scale * dot[u];
        }
    }
}

/* Sums of score[j] * row j of v, `WIDTH` columns to a thread; group g has rows g, g + n_groups. */
template <int WIDTH>
static __device__ __forceinline__ void add_values(const float *score, const float *v,
                                                  size_t stride, int n, int S, int n_groups,
                                                  float *partial)
{
    const int columns = S / WIDTH, group = threadIdx.x / columns;
    const int i = threadIdx.x % columns * WIDTH;
    if (group >= n_groups) /* guard: no barrier below */
        return;
    float sum[WIDTH] = {};
#pragma unroll 4
    for (int j = group; j < n; j += n_groups) {
        const float weight = score[j];
        float value[WIDTH];
        if (WIDTH == 4) {
            const float4 four = *(const float4 *)(v + j * stride + i);
            value[0] = four.x;
            value[1 % WIDTH] = four.y;
            value[2 % WIDTH] = four.z;
            value[3 % WIDTH] = four.w;
        } else {
            value[0] = v[j * stride + i];
        }
#pragma unroll
        for (int c = 0; c < WIDTH; c++)
            sum[c] = weight != 0.0f ? fmaf(weight, value[c], sum[c]) : sum[c];
    }
#pragma unroll
    for (int c = 0; c < WIDTH; c++)
        partial[group * S + i + c] = sum[c];
}

static __device__ __forceinline__ void attend(const float *q, const float *k_cache,
                                              const float *v_cache, const unsigned short *mask,
                                              float *out, int H, int G, int S, int C)
{
    __shared__ float4 head[MAX_SIZE / 4];
    __shared__ float part[N_WARPS];
    float *const query = (float *)head;
    float *const partial = dynamic_shared(), *const score = partial + PARTIAL;
    const size_t at = ((size_t)blockIdx.y * H + blockIdx.x) * S, stride = (size_t)G * S;
    const int group = blockIdx.x / (H / G) * S;
    if (threadIdx.x < S)
        query[threadIdx.x] = q[at + threadIdx.x];
    const int n = read_mask(mask + (size_t)blockIdx.y * C, C, score, part) + 1;
    if (n == 0) { /* guard: the same for the whole block */
        if (threadIdx.x < S)
            out[at + threadIdx.x] = 0.0f;
        return;
    }
    add_scores(query, k_cache + group, stride, n, S, 1.0f / sqrtf((float)S), score);
    __syncthreads();

    float top = -INFINITY, sum = 0.0f;
    for (int j = threadIdx.x; j < n; j += N_THREADS)
        top = fmaxf(top, score[j]);
    top = block_max(top, part);
    for (int j = threadIdx.x; j < n; j += N_THREADS) {
        const float weight = score[j] != -INFINITY ? expf(score[j] - top) : 0.0f;
        score[j] = weight;
        sum += weight;
    }
    sum = block_sum(sum, part); /* has the barrier for the scores */

    const bool vectors = S % 4 == 0 && is_aligned(v_cache + group);
    const int n_groups = min(MAX_GROUPS, N_THREADS / (vectors ? S / 4 : S));
    if (vectors)
        add_values<4>(score, v_cache + group, stride, n, S, n_groups, partial);
    else
        add_values<1>(score, v_cache + group, stride, n, S, n_groups, partial);
    __syncthreads();
    if (threadIdx.x < S) {
        float total = 0.0f;
#pragma unroll 4
        for (int g = 0; g < n_groups; g++)
            total += partial[g * S + threadIdx.x];
        out[at + threadIdx.x] = total / sum;
    }
}

extern "C" __global__ void __launch_bounds__(N_THREADS)
attention(const float *q, const float *k_cache, const float *v_cache, const __half *mask,
          float *out,
          int T, int H, int G, int S, int C,
          fault_record *fault, stamp_record *stamp, int slot)
{
    stamp_begin(stamp);
    if (blockIdx.y < T) /* guard */
        attend(q, k_cache, v_cache, (const unsigned short *)mask, out, H, G, S, C);
    stamp_end(stamp);
}
