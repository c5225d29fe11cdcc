/* Arithmetic of the host kernels: the same bits on every machine, whatever its vector width.
 *
 * The lane loops exist for the baseline instruction set and, on x86-64, for AVX2 with F16C; the
 * latter runs where the processor has it.  Nothing here uses a fused multiply-add or libm, whose
 * results differ between processors.  Compile with -ffp-contract=off.
 */
#ifndef SYNCSCOPE_HOST_MATH_H
#define SYNCSCOPE_HOST_MATH_H

#include "shared_math.h"

#define N_LANES 32
#define MAX_ROW 8192 /* longest weight row; signature.LIMITS keeps to it */

/* Exact; a subnormal half becomes normal by subtracting its implied bit. */
static inline float half_to_float(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t magnitude = (uint32_t)(half & 0x7fffu) << 13;
    uint32_t bits = magnitude + (112u << 23);
    if (magnitude < (1u << 23)) {
        const float small = float_of_bits(magnitude + (113u << 23)) - float_of_bits(113u << 23);
        memcpy(&bits, &small, sizeof bits);
    } else if (magnitude >= (31u << 23)) {
        bits |= 0xffu << 23;
    }
    return float_of_bits(bits | sign);
}

static inline float silu_f32(float x)
{
    return x / (1.0f + exp_f32(-x));
}

/* base ** exponent for base >= 1 and exponent in [-1, 0], to about 1e-15. */
static inline double shrink_power(double base, double exponent)
{
    int halvings = 0;
    while (base > 1.5) {
        base *= 0.5;
        halvings++;
    }
    const double s = (base - 1.0) / (base + 1.0);
    double log_base = 0.0, term = s;
    for (int i = 1; i < 40; i += 2, term *= s * s)
        log_base += 2.0 * term / i;
    const double x = exponent * (log_base + halvings * 0.69314718055994530942) / 1024.0;
    double power = 1.0; /* exp(x), then squared ten times */
    for (int i = 12; i > 0; i--)
        power = 1.0 + power * x / i;
    for (int i = 0; i < 10; i++)
        power *= power;
    return power;
}

/* Cosine and sine of an angle >= 0 (below 2^31), to about 1e-12. */
static inline void cos_sin(double angle, float *cosine, float *sine)
{
    const int64_t quarter = (int64_t)(angle * 0.63661977236758134308 + 0.5);
    const double r = (angle - (double)quarter * 1.5707963267341256)
                     - (double)quarter * 6.077100506506192e-11;
    const double z = r * r;
    double c = 1.0, s = 1.0;
    for (int i = 16; i > 0; i -= 2) {
        c = 1.0 - c * z / (double)(i * (i - 1));
        s = 1.0 - s * z / (double)(i * (i + 1));
    }
    s *= r;
    const double turned_c = quarter & 1 ? s : c, turned_s = quarter & 1 ? c : s;
    *cosine = (float)((quarter + 1) & 2 ? -turned_c : turned_c);
    *sine = (float)(quarter & 2 ? -turned_s : turned_s);
}

static inline float root_f32(float x)
{
    return __builtin_sqrtf(x);
}

#define TARGET
#define WIDTH 4
#define NAME(f) f##_baseline
#include "host_lanes.h"
#undef TARGET
#undef WIDTH
#undef NAME

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,f16c")))
#define WIDTH 8
#define NAME(f) f##_wide
#include "host_lanes.h"
#undef TARGET
#undef WIDTH
#undef NAME

static inline int has_wide(void)
{
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}
#define LANES(f) (use_wide ? f##_wide : f##_baseline)
#else
static inline int has_wide(void) { return 0; }
#define LANES(f) f##_baseline
#endif

static int use_wide; /* set when the module is imported; both answers give the same bits */

/* out[t] = w . row t of x, for n_tokens rows of length n. */
static inline void row_dots_f32(const float *x, const float *w, int64_t n_tokens, int64_t n,
                                float *out)
{
    LANES(row_dots_f32)(x, w, n_tokens, n, out);
}

static inline void row_dots_f16(const float *x, const uint16_t *w, int64_t n_tokens, int64_t n,
                                float *out)
{
    LANES(row_dots_f16)(x, w, n_tokens, n, out);
}

/* Attention of one head over the n rows of k and v that `index` lists; `score` starts as the mask. */
static inline void attend(const float *q, const float *k, const float *v, int64_t stride,
                          const int32_t *index, int64_t n, int64_t size, float *score, float *out)
{
    LANES(head_scores)(q, k, stride, index, n, size, 1.0f / root_f32((float)size), score);
    const float sum = LANES(exp_below_top)(score, n);
    LANES(weighted_rows)(score, v, stride, index, n, size, out);
    for (int64_t i = 0; i < size; i++)
        out[i] /= sum;
}

#endif
