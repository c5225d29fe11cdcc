"""Arithmetic that the host kernels share (host_math.h), also with the device's (shared_math.h)."""
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t

cdef extern from "shared_math.h" nogil:
    enum:
        N_DIGITS
        N_LEVELS
    uint64_t high_product(uint64_t a, uint64_t b)
    uint32_t order_key(float value)
    float float_of_key(uint32_t key)
    int digit_shift(int level)
    uint64_t token_weight(float logit, float top, float temperature)
    uint64_t share_of(uint64_t total, float share)
    int64_t ties_for(uint64_t mass, uint64_t weight)
    uint64_t random_bits(uint64_t seed, uint64_t position)

cdef extern from "host_math.h" nogil:
    enum:
        MAX_ROW
    int use_wide
    int has_wide()
    float half_to_float(uint16_t half)
    float silu_f32(float x)
    float root_f32(float x)
    double shrink_power(double base, double exponent)
    void cos_sin(double angle, float *cosine, float *sine)
    void row_dots_f32(const float *x, const float *w, int64_t n_tokens, int64_t n, float *out)
    void row_dots_f16(const float *x, const uint16_t *w, int64_t n_tokens, int64_t n, float *out)
    void attend(
        const float *q, const float *k, const float *v, int64_t stride,
        const int32_t *index, int64_t n, int64_t size, float *score, float *out,
    )
