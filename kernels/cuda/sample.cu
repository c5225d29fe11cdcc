/* sample: a seeded draw of the next token, the same token as the host twin's for the same logits.
 *
 * logits f32[V], pos i32[T], token i32[1].  The token follows the last position of the micro-batch;
 * its own position is the number of its random draw.  Weights, keys and random numbers are those of
 * shared_math.h; what is kept are all logits whose key is above `last`, and the first `n_ties` with
 * that key: the top_k greatest, of these the fewest greatest whose mass is at least top_p of theirs.
 * NaN is never drawn; if there is nothing else, the token is 0.
 *
 * One block of 1024 threads.  Counts and masses are whole numbers, so that neither atomics nor the
 * split of the work show in the sums.  The logits are read up to nine times, from the L2 cache; to
 * keep them would take more shared memory than every GPU has.
 *
 * Every decision is made from shared memory, alike in all threads: barriers stay safe even if a race
 * changes the logits meanwhile.
 */
#include "../shared_math.h"
#include "common.cuh"

#define N_READERS 1024
#define N_PARTS (N_READERS / 32) /* warps; of a range of logits each takes one part */

struct weights { /* of the logits of one launch */
    float top, temperature;
};

static __device__ __forceinline__ uint64_t mass_of(float logit, const weights &scale)
{
    return token_weight(logit, scale.top, scale.temperature);
}

static __device__ __forceinline__ uint64_t warp_total(uint64_t value)
{
    for (int step = 16; step > 0; step /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

/* Sum over the block, in every thread. */
static __device__ __forceinline__ uint64_t block_total(uint64_t value)
{
    __shared__ uint64_t part[N_PARTS];
    value = warp_total(value);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0;
    for (int w = 0; w < N_PARTS; w++)
        value += part[w];
    __syncthreads(); /* `part` may be written again */
    return value;
}

/* Sum over the threads before this one. */
static __device__ __forceinline__ uint64_t block_total_before(uint64_t value)
{
    __shared__ uint64_t part[N_PARTS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint64_t sum = value;
    for (int step = 1; step < 32; step *= 2) {
        const uint64_t other = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step)
            sum += other;
    }
    if (lane == 31)
        part[warp] = sum;
    __syncthreads();
    sum -= value;
    for (int w = 0; w < warp; w++)
        sum += part[w];
    __syncthreads();
    return sum;
}

/* Greatest key over the block, in every thread. */
static __device__ __forceinline__ uint32_t greatest_key(const float *logits, int V)
{
    __shared__ uint32_t part[N_PARTS];
    uint32_t top = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < V; i += N_READERS)
        top = max(top, order_key(logits[i]));
    for (int step = 16; step > 0; step /= 2)
        top = max(top, __shfl_xor_sync(0xffffffffu, top, step));
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = top;
    __syncthreads();
    for (int w = 0; w < N_PARTS; w++)
        top = max(top, part[w]);
    __syncthreads();
    return top;
}

/* Adds to a number of 64 bits in two halves: shared memory adds 32 bits at a time. */
static __device__ __forceinline__ void add_to(uint32_t *low, uint32_t *high, uint64_t value)
{
    const uint32_t before = atomicAdd(low, (uint32_t)value);
    const uint32_t carry = before + (uint32_t)value < before ? 1 : 0;
    const uint32_t rest = (uint32_t)(value >> 32) + carry;
    if (rest > 0)
        atomicAdd(high, rest);
}

/* Greatest key such that it and greater ones hold `wanted`: logits, or mass of their weights.
 * `above` gets what greater keys hold.  Digit by digit, each from a histogram of the logits whose
 * digits before it are known. */
static __device__ __forceinline__ uint32_t find_key(const float *logits, int V,
                                                    const weights &scale, bool by_mass,
                                                    uint64_t wanted, uint64_t &above)
{
    static_assert(N_DIGITS == 2 * N_READERS, "a thread has two digits");
    __shared__ uint32_t low[N_DIGITS], high[N_DIGITS];
    __shared__ uint32_t found;
    __shared__ uint64_t above_found;
    uint32_t known = 0, prefix = 0;
    above = 0;
    for (int level = 0; level < N_LEVELS; level++) {
        const int shift = digit_shift(level);
        for (int digit = threadIdx.x; digit < N_DIGITS; digit += N_READERS)
            low[digit] = high[digit] = 0;
        if (threadIdx.x == 0) { /* if none is found below, which only a race can bring about */
            found = 0;
            above_found = above;
        }
        __syncthreads();
#pragma unroll 4
        for (int i = threadIdx.x; i < V; i += N_READERS) {
            const float logit = logits[i];
            const uint32_t key = order_key(logit), digit = key >> shift & (N_DIGITS - 1);
            if ((key & known) == prefix)
                add_to(&low[digit], &high[digit], by_mass ? mass_of(logit, scale) : 1);
        }
        __syncthreads();
        const int first = N_DIGITS - 1 - 2 * threadIdx.x, second = first - 1;
        const uint64_t of_first = (uint64_t)high[first] << 32 | low[first];
        const uint64_t of_second = (uint64_t)high[second] << 32 | low[second];
        const uint64_t before = above + block_total_before(of_first + of_second);
        if (before < wanted && wanted <= before + of_first + of_second) { /* in one thread */
            const bool in_first = wanted <= before + of_first;
            found = in_first ? first : second;
            above_found = in_first ? before : before + of_first;
        }
        __syncthreads();
        prefix |= found << shift;
        known |= (uint32_t)(N_DIGITS - 1) << shift;
        above = above_found;
        __syncthreads(); /* `found` may be written again */
    }
    return prefix;
}

/* Mass of all logits whose key is above `last`, in every thread. */
static __device__ __forceinline__ uint64_t mass_above(const float *logits, int V,
                                                      const weights &scale, uint32_t last)
{
    uint64_t mass = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < V; i += N_READERS) {
        const float logit = logits[i];
        if (order_key(logit) > last)
            mass += mass_of(logit, scale);
    }
    return block_total(mass);
}

/* The first kept logit with which the sum of masses, in order of the numbers, exceeds `left`.
 * A range is cut into a part per warp, then the part that has it, until one logit is left. */
static __device__ __forceinline__ int find_token(const float *logits, int V, const weights &scale,
                                                 uint32_t last, int64_t n_ties, uint64_t left)
{
    __shared__ uint64_t mass_of_part[N_PARTS];
    __shared__ int ties_of_part[N_PARTS];
    const uint64_t tie = mass_of(float_of_key(last), scale);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int begin = 0, length = V;
    while (length > 1) {
        const int size = (length + N_PARTS - 1) / N_PARTS;
        const int end = begin + min((warp + 1) * size, length);
        uint64_t mass = 0;
        int n_equal = 0;
#pragma unroll 4
        for (int i = begin + warp * size + lane; i < end; i += 32) {
            const float logit = logits[i];
            const uint32_t key = order_key(logit);
            if (key > last)
                mass += mass_of(logit, scale);
            n_equal += key == last;
        }
        mass = warp_total(mass);
        n_equal = (int)warp_total(n_equal);
        if (lane == 0) {
            mass_of_part[warp] = mass;
            ties_of_part[warp] = n_equal;
        }
        __syncthreads();
        int part = 0;
        for (; part < N_PARTS - 1; part++) {
            const int64_t kept = min(n_ties, (int64_t)ties_of_part[part]);
            const uint64_t here = mass_of_part[part] + kept * tie;
            if (left < here)
                break;
            left -= here;
            n_ties -= kept;
        }
        __syncthreads();
        begin += min(part * size, length - 1);
        length = max(min(size, length - part * size), 1);
    }
    return begin;
}

static __device__ __forceinline__ int draw(const float *logits, const int *pos, int V,
                                           float temperature, int top_k, float top_p,
                                           uint64_t seed)
{
    __shared__ uint64_t bits;
    if (threadIdx.x == 0)
        bits = random_bits(seed, (uint64_t)load_once(pos) + 1);
    const uint32_t top = greatest_key(logits, V); /* has the barrier for `bits` */
    if (top == 0) /* guard: the same for the whole block */
        return 0;
    const weights scale = {float_of_key(top), temperature};
    uint32_t last = 0;
    int64_t n_ties = V;
    uint64_t above;
    if (0 < top_k && top_k < V) {
        last = find_key(logits, V, scale, false, top_k, above);
        n_ties = top_k - (int64_t)above;
    }
    uint64_t total = mass_above(logits, V, scale, last)
                     + n_ties * mass_of(float_of_key(last), scale);
    if (top_p < 1.0f) {
        const uint64_t mass = share_of(total, top_p);
        last = find_key(logits, V, scale, true, mass, above);
        const uint64_t tie = mass_of(float_of_key(last), scale);
        n_ties = ties_for(mass - above, tie);
        total = above + n_ties * tie;
    }
    return find_token(logits, V, scale, last, n_ties, high_product(bits, total));
}

extern "C" __global__ void __launch_bounds__(N_READERS, 1)
sample(const float *logits, const int *pos, int *token,
       int T, int V, float temperature, int top_k, float top_p, unsigned long long seed,
       fault_record *fault, stamp_record *stamp, int slot)
{
    stamp_begin(stamp);
    const int drawn = draw(logits, pos + T - 1, V, temperature, top_k, top_p, seed);
    if (threadIdx.x == 0)
        token[0] = drawn;
    stamp_end(stamp);
}
