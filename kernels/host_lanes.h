/* The lane loops of the host kernels, written once for any vector width.
 *
 * host_math.h includes this file once per instruction set, with WIDTH (floats in a vector) and
 * NAME(f) (the function's name there) defined.  Float additions happen in the same order at every
 * WIDTH, and no product is fused into an addition, so all versions give the same bits.
 *
 * Order of a dot product of n: lane l of N_LANES adds the products l, l + N_LANES, ... one after
 * the other; then the lanes are halved until one is left.
 */

typedef float NAME(vec) __attribute__((vector_size(4 * WIDTH)));

static inline __attribute__((always_inline)) TARGET NAME(vec) NAME(load)(const float *p)
{
    NAME(vec) v;
    memcpy(&v, p, sizeof v);
    return v;
}

#if WIDTH == 8
static inline __attribute__((always_inline)) TARGET NAME(vec) NAME(load_half)(const uint16_t *p)
{
    return (NAME(vec))_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
#else
typedef uint16_t NAME(half) __attribute__((vector_size(2 * WIDTH)));
typedef uint32_t NAME(bits) __attribute__((vector_size(4 * WIDTH)));

static inline __attribute__((always_inline)) NAME(vec) NAME(load_half)(const uint16_t *p)
{
    NAME(half) h;
    memcpy(&h, p, sizeof h);
    const NAME(bits) wide = __builtin_convertvector(h, NAME(bits));
    const NAME(bits) sign = (wide & 0x8000u) << 16;
    const NAME(bits) magnitude = (wide & 0x7fffu) << 13;
    const NAME(bits) one = (NAME(bits)){0} + (113u << 23);
    const NAME(bits) small = (NAME(bits))((NAME(vec))(magnitude + one) - (NAME(vec))one);
    const NAME(bits) is_small = (NAME(bits))(magnitude < (1u << 23));
    const NAME(bits) is_special = (NAME(bits))(magnitude >= (31u << 23));
    NAME(bits) out = (small & is_small) | ((magnitude + (112u << 23)) & ~is_small);
    out |= is_special & (0xffu << 23);
    return (NAME(vec))(out | sign);
}
#endif

/* Sum of the lanes in `sum`, which is overwritten. */
static inline __attribute__((always_inline)) TARGET float NAME(fold)(NAME(vec) *sum, int n_lanes)
{
    for (int half = n_lanes / WIDTH / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            sum[k] += sum[k + half];
#if WIDTH == 8
    for (int l = 0; l < 4; l++)
        sum[0][l] += sum[0][l + 4];
#endif
    return (sum[0][0] + sum[0][2]) + (sum[0][1] + sum[0][3]);
}

/* sum += x * w over fewer than N_LANES elements: the others count as zeros. */
static inline TARGET void NAME(add_rest)(const float *x, const float *w, int64_t n, NAME(vec) *sum)
{
    float x_rest[N_LANES] = {0}, w_rest[N_LANES] = {0};
    memcpy(x_rest, x, (size_t)n * sizeof *x);
    memcpy(w_rest, w, (size_t)n * sizeof *w);
    for (int k = 0; k < N_LANES / WIDTH; k++)
        sum[k] += NAME(load)(w_rest + k * WIDTH) * NAME(load)(x_rest + k * WIDTH);
}

static inline TARGET float NAME(dot)(const float *x, const float *w, int64_t n)
{
    NAME(vec) sum[N_LANES / WIDTH] = {{0}};
    int64_t i = 0;
    for (; i + N_LANES <= n; i += N_LANES)
        for (int k = 0; k < N_LANES / WIDTH; k++)
            sum[k] += NAME(load)(w + i + k * WIDTH) * NAME(load)(x + i + k * WIDTH);
    if (i < n)
        NAME(add_rest)(x + i, w + i, n - i, sum);
    return NAME(fold)(sum, N_LANES);
}

static inline TARGET float NAME(dot_half)(const float *x, const uint16_t *w, int64_t n)
{
    NAME(vec) sum[N_LANES / WIDTH] = {{0}};
    float rest[N_LANES];
    int64_t i = 0;
    for (; i + N_LANES <= n; i += N_LANES)
        for (int k = 0; k < N_LANES / WIDTH; k++)
            sum[k] += NAME(load_half)(w + i + k * WIDTH) * NAME(load)(x + i + k * WIDTH);
    if (i < n) {
        for (int l = 0; i + l < n; l++)
            rest[l] = half_to_float(w[i + l]);
        NAME(add_rest)(x + i, rest, n - i, sum);
    }
    return NAME(fold)(sum, N_LANES);
}

/* Two rows of x against one of w: `dot` twice, with w loaded once. */
static inline TARGET void NAME(dot_pair)(const float *x, const float *w, int64_t n, float *out)
{
    NAME(vec) sum[N_LANES / WIDTH] = {{0}}, other[N_LANES / WIDTH] = {{0}};
    int64_t i = 0;
    for (; i + N_LANES <= n; i += N_LANES)
        for (int k = 0; k < N_LANES / WIDTH; k++) {
            const NAME(vec) row = NAME(load)(w + i + k * WIDTH);
            sum[k] += row * NAME(load)(x + i + k * WIDTH);
            other[k] += row * NAME(load)(x + n + i + k * WIDTH);
        }
    if (i < n) {
        NAME(add_rest)(x + i, w + i, n - i, sum);
        NAME(add_rest)(x + n + i, w + i, n - i, other);
    }
    out[0] = NAME(fold)(sum, N_LANES);
    out[1] = NAME(fold)(other, N_LANES);
}

static TARGET void NAME(row_dots_f32)(const float *x, const float *w, int64_t n_tokens, int64_t n,
                                      float *out)
{
    int64_t t = 0;
    for (; t + 2 <= n_tokens; t += 2)
        NAME(dot_pair)(x + t * n, w, n, out + t);
    if (t < n_tokens)
        out[t] = NAME(dot)(x + t * n, w, n);
}

static TARGET void NAME(row_dots_f16)(const float *x, const uint16_t *w, int64_t n_tokens,
                                      int64_t n, float *out)
{
    float row[MAX_ROW];
    int64_t i = 0;
    if (n_tokens == 1) {
        out[0] = NAME(dot_half)(x, w, n);
        return;
    }
    for (; i + WIDTH <= n; i += WIDTH) {
        const NAME(vec) v = NAME(load_half)(w + i);
        memcpy(row + i, &v, sizeof v);
    }
    for (; i < n; i++)
        row[i] = half_to_float(w[i]);
    NAME(row_dots_f32)(x, row, n_tokens, n, out);
}

/* score[j] += scale * (q . row index[j] of k): 8 lanes, since a head is short. */
static TARGET void NAME(head_scores)(const float *q, const float *k, int64_t stride,
                                     const int32_t *index, int64_t n, int64_t size, float scale,
                                     float *score)
{
    for (int64_t j = 0; j < n; j++) {
        const float *row = k + index[j] * stride;
        NAME(vec) sum[8 / WIDTH] = {{0}};
        float rest = 0.0f;
        int64_t i = 0;
        for (; i + 8 <= size; i += 8)
            for (int v = 0; v < 8 / WIDTH; v++)
                sum[v] += NAME(load)(q + i + v * WIDTH) * NAME(load)(row + i + v * WIDTH);
        for (; i < size; i++)
            rest += q[i] * row[i];
        score[j] += scale * (NAME(fold)(sum, 8) + rest);
    }
}

/* score[j] = exp(score[j] - greatest); returns their sum, taken in 8 lanes. */
static TARGET float NAME(exp_below_top)(float *score, int64_t n)
{
    float top[8], lane[8] = {0};
    int64_t j = 0;
    for (int l = 0; l < 8; l++)
        top[l] = score[0];
    for (; j + 8 <= n; j += 8)
        for (int l = 0; l < 8; l++)
            top[l] = score[j + l] > top[l] ? score[j + l] : top[l];
    for (; j < n; j++)
        top[0] = score[j] > top[0] ? score[j] : top[0];
    for (int l = 1; l < 8; l++)
        top[0] = top[l] > top[0] ? top[l] : top[0];
    for (j = 0; j < n; j++)
        score[j] = exp_f32(score[j] - top[0]);
    for (j = 0; j + 8 <= n; j += 8)
        for (int l = 0; l < 8; l++)
            lane[l] += score[j + l];
    for (int l = 0; j + l < n; l++)
        lane[l] += score[j + l];
    for (int half = 4; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

/* out = sum of weight[j] * row index[j] of v, `columns` of them, rows one after the other. */
static inline __attribute__((always_inline)) TARGET void
NAME(weighted_columns)(const float *weight, const float *v, int64_t stride, const int32_t *index,
                       int64_t n, const int columns, float *out)
{
    NAME(vec) sum[4] = {{0}};
    for (int64_t j = 0; j < n; j++)
        for (int k = 0; k < columns / WIDTH; k++)
            sum[k] += weight[j] * NAME(load)(v + index[j] * stride + k * WIDTH);
    memcpy(out, sum, (size_t)columns * sizeof *out);
}

static TARGET void NAME(weighted_rows)(const float *weight, const float *v, int64_t stride,
                                       const int32_t *index, int64_t n, int64_t size, float *out)
{
    int64_t i = 0;
    for (; i + 4 * WIDTH <= size; i += 4 * WIDTH)
        NAME(weighted_columns)(weight, v + i, stride, index, n, 4 * WIDTH, out + i);
    for (; i + WIDTH <= size; i += WIDTH)
        NAME(weighted_columns)(weight, v + i, stride, index, n, WIDTH, out + i);
    for (; i < size; i++) {
        float sum = 0;
        for (int64_t j = 0; j < n; j++)
            sum += weight[j] * v[index[j] * stride + i];
        out[i] = sum;
    }
}
