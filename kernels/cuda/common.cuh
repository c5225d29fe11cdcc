/* What the device kernels share: fault and stamp records, RMSNorm, and dot products of weight rows.
 *
 * Every kernel takes the arguments of its signature (kernels/signature.py) as pointers, then the
 * signature's parameters by value, then `fault, stamp, slot`.  kernels/cuda_launch.py holds the
 * launch shapes; all matrix kernels run with N_THREADS threads and loop over rows, so that the
 * grid decides who computes a row and never how.
 *
 * Order of a dot product of n: a lane takes 16 bytes of the row, the next lane the next 16 bytes;
 * after 32 lanes the first goes on.  Each lane adds its products one after the other, then the
 * lanes are folded as a butterfly.  The order depends on n and the type of the weights alone: not
 * on the micro-batch, the grid or the alignment.  The files are compiled without contraction, so
 * that only what is written as fmaf is fused, in every instance of a template alike.
 *
 * A value that the host rewrites (an index) is read once, by one thread of a block, and checked
 * before it is used: a copy that overtakes the kernel may change it at any moment.
 */
#ifndef SYNCSCOPE_COMMON_CUH
#define SYNCSCOPE_COMMON_CUH

#include <cuda_fp16.h>

#define N_THREADS 256
#define N_WARPS (N_THREADS / 32)
#define TILE 8        /* tokens that share one pass over the weights */
#define STAGED 8192   /* floats of a tile in shared memory: a token of a decode step fits whole */
#define MAX_SIZE 256  /* signature.LIMITS["S"] */
#define MIN_BLOCKS 3  /* of a multiprocessor: leaves the matrix kernels 80 registers */

/* ------------------------------------------------------------------------------ records */

typedef struct {
    int set; /* 1 from the first fault on */
    int kernel_slot;
    long long value, low, high;
    int what; /* a FAULT_ code */
} fault_record;

enum { /* cuda_launch.FAULTS has the same codes and words */
    FAULT_POSITION = 1, /* position */
    FAULT_K_ROW = 2,    /* k_idxs row */
    FAULT_V_ROW = 3,    /* v_idxs row */
    FAULT_OUT_ID = 4    /* out_ids row */
};

typedef struct { /* when a launch ran, in ns of %globaltimer; 0: not known */
    unsigned long long begin, end;
} stamp_record;

/* True if 0 <= value <= high; otherwise the first caller of all leaves a record. */
static __device__ __forceinline__ bool in_range(long long value, long long high, int what,
                                                fault_record *fault, int slot)
{
    if (0 <= value && value <= high)
        return true;
    if (fault != nullptr && atomicCAS(&fault->set, 0, 1) == 0) {
        fault->kernel_slot = slot;
        fault->value = value;
        fault->low = 0;
        fault->high = high;
        fault->what = what;
    }
    return false;
}

/* One load that the compiler may not repeat after the check. */
template <typename V> static __device__ __forceinline__ V load_once(const V *p)
{
    return *(const volatile V *)p;
}

static __device__ __forceinline__ unsigned long long timer_ns(void)
{
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
}

/* Stamps are on the critical path of a kernel, the first block's begin as much as the last block's
 * end.  So the place is the same in every step and comes as an argument: nothing is loaded, and no
 * register holds anything in between.  advance_step puts the stamps of a step by before the next.
 *
 * First statement of a kernel: when thread 0 of the first block began.  NULL: no stamps. */
static __device__ __forceinline__ void stamp_begin(stamp_record *stamp)
{
    if (stamp != nullptr && threadIdx.x == 0 && (blockIdx.x | blockIdx.y | blockIdx.z) == 0)
        stamp->begin = timer_ns();
}

/* Last statement of a kernel: when thread 0 of the last-numbered block, which starts last, had done
 * its share.  A lower bound of the kernel's end: other warps and blocks may have more to do.  The
 * exact end would take a barrier and an atomic per block. */
static __device__ __forceinline__ void stamp_end(stamp_record *stamp)
{
    if (stamp != nullptr && threadIdx.x == 0 && blockIdx.x == gridDim.x - 1
        && blockIdx.y == gridDim.y - 1 && blockIdx.z == gridDim.z - 1)
        stamp->end = timer_ns();
}

/* ------------------------------------------------------------------------------ small parts */

/* Sum over a warp, the same bits in every lane. */
static __device__ __forceinline__ float warp_sum(float value)
{
    for (int step = 16; step > 0; step /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

static __device__ __forceinline__ float warp_max(float value)
{
    for (int step = 16; step > 0; step /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
    return value;
}

static __device__ __forceinline__ float to_float(float value)
{
    return value;
}

static __device__ __forceinline__ float to_float(__half value)
{
    return __half2float(value);
}

static __device__ __forceinline__ bool is_aligned(const void *p)
{
    return ((size_t)p & 15) == 0;
}

/* Dynamic shared memory; its size comes from cuda_launch.py. */
static __device__ __forceinline__ float *dynamic_shared(void)
{
    extern __shared__ float4 dynamic[];
    return (float *)dynamic;
}

/* ------------------------------------------------------------------------------ RMSNorm */

/* scale[t] = 1 / sqrt(mean square of row t of x + eps), for n_tokens rows of length n.
 * All threads of the block; `scale` is shared memory, ready on return. */
template <int TT>
static __device__ __forceinline__ void rms_scales(const float *x, int n_tokens, int n, float eps,
                                                  float *scale)
{
    __shared__ float part[N_WARPS][TT];
    float sum[TT] = {};
    for (int i = threadIdx.x; i < n; i += N_THREADS)
#pragma unroll
        for (int t = 0; t < TT; t++)
            if (t < n_tokens) {
                const float value = x[(size_t)t * n + i];
                sum[t] = fmaf(value, value, sum[t]);
            }
#pragma unroll
    for (int t = 0; t < TT; t++) {
        const float total = warp_sum(sum[t]);
        if (threadIdx.x % 32 == 0)
            part[threadIdx.x / 32][t] = total;
    }
    __syncthreads();
    if (threadIdx.x < n_tokens) {
        float total = 0.0f;
        for (int w = 0; w < N_WARPS; w++)
            total += part[w][threadIdx.x];
        scale[threadIdx.x] = 1.0f / sqrtf(total / (float)n + eps);
    }
    __syncthreads();
}

/* ------------------------------------------------------------------------------ dot products */

/* The tokens of a block: TT rows of x, of which n_tokens exist.  `staged` holds `stride` elements
 * of each in shared memory, normed if there is a norm. */
template <typename W> struct tile {
    const float *x;
    const W *norm; /* NULL: as they are */
    const float *scale;
    int n_tokens, length, stride;
    float *staged;
};

/* Elements of each token that are staged at a time; cuda_launch.py sizes shared memory by it. */
template <int TT> static __device__ __forceinline__ int stride_of(int length)
{
    return min((length + 7) / 8 * 8, STAGED / TT);
}

/* Where element i of a staged token lies.  A lane's 8 halves need 8 floats; read as two float4
 * they would lie 32 bytes apart and meet in the same banks, so the two have a plane each. */
template <typename W> static __device__ __forceinline__ int place(int i, int stride)
{
    return sizeof(W) == 4 ? i : i / 8 * 4 + i % 4 + (i / 4 % 2) * (stride / 2);
}

/* Stages `count` elements of each token from `begin` on, zeros up to a multiple of 8. */
template <typename W, int TT>
static __device__ __forceinline__ void stage(const tile<W> &in, int begin, int count)
{
    const int padded = (count + 7) / 8 * 8;
    for (int i = threadIdx.x; i < padded; i += N_THREADS) {
        const float norm = in.norm != nullptr && i < count ? to_float(in.norm[begin + i]) : 0.0f;
#pragma unroll
        for (int t = 0; t < TT; t++) {
            float value = 0.0f;
            if (t < in.n_tokens && i < count) {
                value = in.x[(size_t)t * in.length + begin + i];
                if (in.norm != nullptr)
                    value = value * in.scale[t] * norm;
            }
            in.staged[t * in.stride + place<W>(i, in.stride)] = value;
        }
    }
}

/* 16 bytes of a weight row as floats.  The read-only path lets the compiler have several of these
 * loads in flight before the first product. */
static __device__ __forceinline__ void load_vector(const float *p, float (&w)[4])
{
    const float4 v = __ldg((const float4 *)p);
    w[0] = v.x;
    w[1] = v.y;
    w[2] = v.z;
    w[3] = v.w;
}

static __device__ __forceinline__ void load_vector(const __half *p, float (&w)[8])
{
    const uint4 v = __ldg((const uint4 *)p);
    const unsigned int bits[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        w[2 * k] = __half2float(__ushort_as_half((unsigned short)(bits[k] & 0xffffu)));
        w[2 * k + 1] = __half2float(__ushort_as_half((unsigned short)(bits[k] >> 16)));
    }
}

/* The same from a row that ends after `left` elements or is not aligned: absent ones are zero. */
template <typename W, int N>
static __device__ __forceinline__ void load_rest(const W *p, int left, bool aligned, float (&w)[N])
{
    if (aligned && left >= N) {
        load_vector(p, w);
        return;
    }
#pragma unroll
    for (int k = 0; k < N; k++)
        w[k] = k < left ? to_float(p[k]) : 0.0f;
}

/* sum[r][t] += the products of one 16-byte part of row r with token t; i: its first element. */
template <typename W, int TT, int R, int N>
static __device__ __forceinline__ void add_part(const tile<W> &in, int i, const float (&w)[R][N],
                                                float (&sum)[R][TT])
{
#pragma unroll
    for (int t = 0; t < TT; t++) {
        float x[N];
#pragma unroll
        for (int k = 0; k < N; k += 4) {
            const float4 v = *(const float4 *)&in.staged[t * in.stride + place<W>(i + k, in.stride)];
            x[k] = v.x;
            x[k + 1] = v.y;
            x[k + 2] = v.z;
            x[k + 3] = v.w;
        }
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[r][t] = fmaf(w[r][k], x[k], sum[r][t]);
    }
}

/* One lane's share of the first `count` elements of R rows against what is staged. */
template <typename W, int TT, int R>
static __device__ __forceinline__ void add_rows(const tile<W> &in, const W *const (&row)[R],
                                                int count, float (&sum)[R][TT])
{
    constexpr int N = 16 / sizeof(W);
    constexpr int UNROLL = TT == 1 ? 4 : 1; /* loads in flight matter where nothing is reused */
    bool aligned = true;
#pragma unroll
    for (int r = 0; r < R; r++)
        aligned = aligned && is_aligned(row[r]);
    const int n_whole = aligned ? count / (32 * N) : 0;
    int i = threadIdx.x % 32 * N;
    float w[R][N];
#pragma unroll UNROLL
    for (int n = 0; n < n_whole; n++, i += 32 * N) {
#pragma unroll
        for (int r = 0; r < R; r++)
            load_vector(row[r] + i, w[r]);
        add_part<W, TT, R, N>(in, i, w, sum);
    }
    for (; i < count; i += 32 * N) {
#pragma unroll
        for (int r = 0; r < R; r++)
            load_rest<W, N>(row[r] + i, count - i, aligned, w[r]);
        add_part<W, TT, R, N>(in, i, w, sum);
    }
}

/* sum[r][t] = row r . token t, in every lane of a warp.  All threads of the block call it
 * together, a warp without rows with `active` false; `fresh`: nothing is staged yet.  A tile that
 * does not fit is staged part by part, and then anew for the next rows. */
template <typename W, int TT, int R>
static __device__ __forceinline__ void row_dots(const tile<W> &in, const W *const (&row)[R],
                                                bool active, bool fresh, float (&sum)[R][TT])
{
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int t = 0; t < TT; t++)
            sum[r][t] = 0.0f;
    for (int begin = 0; begin < in.length; begin += in.stride) {
        const int count = min(in.stride, in.length - begin);
        if (fresh || in.length > in.stride) {
            __syncthreads(); /* nobody reads the part before any more */
            stage<W, TT>(in, begin, count);
            __syncthreads();
        }
        if (active) {
            const W *part[R];
#pragma unroll
            for (int r = 0; r < R; r++)
                part[r] = row[r] + begin;
            add_rows<W, TT, R>(in, part, count, sum);
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int t = 0; t < TT; t++)
            sum[r][t] = warp_sum(sum[r][t]);
}

/* Element `index` of a small array that has to stay in registers. */
template <int N> static __device__ __forceinline__ float pick(const float (&values)[N], int index)
{
    float value = values[0];
#pragma unroll
    for (int i = 1; i < N; i++)
        if (i == index)
            value = values[i];
    return value;
}

#endif
