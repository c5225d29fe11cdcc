/* Arithmetic that host and device kernels share, operation for operation: the same bits on both.
 *
 * Nothing here uses libm, a fused multiply-add or a rounding other than to the nearest float.
 * Compile without contraction: -ffp-contract=off on the host, --fmad=false on the device.
 *
 * Sampling.  The weight of a logit is exp((logit - greatest) / temperature) as a whole number of
 * 2^-WEIGHT_BITS: sums of weights are exact, whoever adds them in whatever order, and those of
 * 2^24 logits fit 64 bits.  Less than one part counts as none.  The order of logits is that of
 * their keys; equal ones have one key, and one weight.  The random number of a token is a function
 * of seed and position alone: the same in any micro-batch, on any device, in any replay.
 */
#ifndef SYNCSCOPE_SHARED_MATH_H
#define SYNCSCOPE_SHARED_MATH_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define HOST_DEVICE static __device__ __forceinline__
#else
#define HOST_DEVICE static inline
#endif

#define WEIGHT_BITS 39
#define DIGIT_BITS 11 /* keys are searched digit by digit, the greatest digit first */
#define N_DIGITS (1 << DIGIT_BITS)
#define N_LEVELS 3

HOST_DEVICE float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

HOST_DEVICE uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* exp within 2 units in the last place; held to [-87, 88]; NaN stays NaN.  No branch: vectorises. */
HOST_DEVICE float exp_f32(float x)
{
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    const float shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds to whole */
    const float whole = shifted - 12582912.0f;
    const float r = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    const uint32_t power = bits_of_float(shifted);
    return p * float_of_bits((power - 0x4b400000u + 127u) << 23);
}

/* The upper half of a 128-bit product. */
HOST_DEVICE uint64_t high_product(uint64_t a, uint64_t b)
{
#ifdef __CUDACC__
    return __umul64hi(a, b);
#else
    return (uint64_t)((unsigned __int128)a * b >> 64);
#endif
}

/* ------------------------------------------------------------------------------ sampling */

/* Orders floats as numbers: NaN is 0 and below minus infinity, the two zeros are one.  No branch:
 * signs are not to be foretold. */
HOST_DEVICE uint32_t order_key(float value)
{
    const uint32_t bits = bits_of_float(value);
    const uint32_t key = bits ^ (0x80000000u | (0u - (bits >> 31)));
    return value != value ? 0 : value == 0.0f ? 0x80000000u : key;
}

/* The number of a key, a NaN of key 0. */
HOST_DEVICE float float_of_key(uint32_t key)
{
    return float_of_bits(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/* The place of a digit in a key.  Three digits are a bit too long: the last two share one bit. */
HOST_DEVICE int digit_shift(int level)
{
    return level < N_LEVELS - 1 ? 32 - DIGIT_BITS * (level + 1) : 0;
}

/* The weight of a logit, 0 of NaN; `top` is the greatest logit. */
HOST_DEVICE uint64_t token_weight(float logit, float top, float temperature)
{
    const float x = logit == top ? 0.0f : (logit - top) / temperature;
    return x > -28.0f ? (uint64_t)(int64_t)(exp_f32(x) * (float)(1ull << WEIGHT_BITS)) : 0;
}

/* The least whole mass that is not below share * total; 2^-40 <= share < 1. */
HOST_DEVICE uint64_t share_of(uint64_t total, float share)
{
    const uint64_t parts = (uint64_t)(share * 18446744073709551616.0f); /* of 2^-64: exact */
    return high_product(total, parts) + (total * parts != 0);
}

/* How many logits of one weight a mass takes.  Logits that change while they are read can make the
 * weight 0; the answer then means nothing, but there is one. */
HOST_DEVICE int64_t ties_for(uint64_t mass, uint64_t weight)
{
    weight = weight > 0 ? weight : 1;
    return (int64_t)(mass / weight + (mass % weight != 0));
}

HOST_DEVICE uint64_t mix_bits(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* 64 random bits: number `position` of the sequence of a seed.  SplitMix64 (Steele, Lea and Flood,
 * OOPSLA 2014), which can be entered anywhere; a seed is mixed first to give its starting point. */
HOST_DEVICE uint64_t random_bits(uint64_t seed, uint64_t position)
{
    const uint64_t step = 0x9e3779b97f4a7c15u;
    return mix_bits(mix_bits(seed + step) + (position + 1) * step);
}

#endif
