# cython: boundscheck=False, wraparound=False, cdivision=True
"""Host twins of the kernels: what the simulated device and the CPU split run.

Each takes its arguments and parameters in the order of its signature, needs no GIL, allocates
nothing, and gives the same bits for any micro-batch size and on any machine.  Every index read
from memory is checked first: stale data ends in a fault with the value, not in a crash.
"""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t, uintptr_t

from syncscope.sched_core.backend cimport (
    STATUS_KERNEL_FAULT, STATUS_OK, KernelTable, fault_t, kernel_t,
)

from syncscope.kernels.work import work_of
from syncscope.sched_core.errors import KernelFault, UsageError

ctypedef fused weight_t:
    uint16_t                               # f16 bits
    float

cdef enum:
    TILE = 32                              # tokens that share one pass over the weights
    SCRATCH = 32768                        # floats of a tile's normed tokens: 128 KiB of stack
    MAX_CACHE = 8192                       # signature.LIMITS["C"]
    MAX_PAIRS = 128                        # half of signature.LIMITS["S"]
    MASKED = 0xfc00                        # f16 bits of minus infinity

use_wide = has_wide()


# --------------------------------------------------------------------------- shared parts

cdef int refuse(
    fault_t *fault, const char *what, int64_t value, int64_t low, int64_t high
) noexcept nogil:
    fault.what = what
    fault.value = value
    fault.low = low
    fault.high = high
    return STATUS_KERNEL_FAULT


cdef int check_i32(
    const int32_t *values, int64_t n, int64_t high, const char *what, fault_t *fault
) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        if not 0 <= values[i] <= high:
            return refuse(fault, what, values[i], 0, high)
    return STATUS_OK


cdef int check_i64(
    const int64_t *values, int64_t n, int64_t high, const char *what, fault_t *fault
) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        if not 0 <= values[i] <= high:
            return refuse(fault, what, values[i], 0, high)
    return STATUS_OK


cdef inline float weight(const weight_t *w, int64_t i) noexcept nogil:
    if weight_t is uint16_t:
        return half_to_float(w[i])
    else:
        return w[i]


cdef inline void row_dots(
    const float *x, const weight_t *w, int64_t n_tokens, int64_t n, float *out
) noexcept nogil:
    if weight_t is uint16_t:
        row_dots_f16(x, w, n_tokens, n, out)
    else:
        row_dots_f32(x, w, n_tokens, n, out)


cdef inline int64_t tile_of(int64_t n) noexcept nogil:
    """Tokens of a tile whose normed rows of length n fit the scratch."""
    return min(<int64_t>TILE, <int64_t>SCRATCH // n)


cdef void rms_norm(
    const float *x, const weight_t *norm, int64_t n_tokens, int64_t n, double eps, float *out
) noexcept nogil:
    cdef int64_t t, i
    cdef float square, scale
    for t in range(n_tokens):
        row_dots_f32(x + t * n, x + t * n, 1, n, &square)
        scale = 1.0 / root_f32(square / <float>n + <float>eps)
        for i in range(n):
            out[t * n + i] = x[t * n + i] * scale * weight(norm, i)


# --------------------------------------------------------------------------- host inputs

cdef int write_positions(void **args, const double *params, fault_t *fault) noexcept nogil:
    cdef const int64_t *cursor = <const int64_t *>args[0]
    cdef int32_t *pos = <int32_t *>args[1]
    cdef int64_t T = <int64_t>params[0], t, start = cursor[0]
    if check_i64(&start, 1, 0x7fffffff - T, b"cursor", fault):
        return STATUS_KERNEL_FAULT
    for t in range(T):
        pos[t] = <int32_t>(start + t)
    return STATUS_OK


cdef int write_kv_indices(void **args, const double *params, fault_t *fault) noexcept nogil:
    cdef const int64_t *cursor = <const int64_t *>args[0]
    cdef int64_t *idxs = <int64_t *>args[1]
    cdef int64_t T = <int64_t>params[0], C = <int64_t>params[1], t, start = cursor[0]
    if check_i64(&start, 1, C - T, b"cursor", fault):
        return STATUS_KERNEL_FAULT
    for t in range(T):
        idxs[t] = start + t
    return STATUS_OK


cdef int write_mask(void **args, const double *params, fault_t *fault) noexcept nogil:
    cdef const int64_t *cursor = <const int64_t *>args[0]
    cdef uint16_t *mask = <uint16_t *>args[1]
    cdef int64_t T = <int64_t>params[0], C = <int64_t>params[1], t, j, start = cursor[0]
    if check_i64(&start, 1, C - T, b"cursor", fault):
        return STATUS_KERNEL_FAULT
    for t in range(T):
        for j in range(start + t + 1):
            mask[t * C + j] = 0
        for j in range(start + t + 1, C):
            mask[t * C + j] = MASKED
    return STATUS_OK


cdef int write_out_ids(void **args, const double *params, fault_t *fault) noexcept nogil:
    cdef int32_t *out_ids = <int32_t *>args[0]
    out_ids[0] = <int32_t>params[0] - 1
    return STATUS_OK


cdef int embed_rows(
    const weight_t *table, void **args, const double *params, fault_t *fault
) noexcept nogil:
    cdef const int32_t *tokens = <const int32_t *>args[0]
    cdef const int64_t *cursor = <const int64_t *>args[1]
    cdef float *embd = <float *>args[3]
    cdef int64_t *cursor_out = <int64_t *>args[4]
    cdef int64_t T = <int64_t>params[0], D = <int64_t>params[1]
    cdef int64_t V = <int64_t>params[2], N = <int64_t>params[3]
    cdef int64_t t, i, row, start = cursor[0]
    if check_i64(&start, 1, N - T, b"cursor", fault):
        return STATUS_KERNEL_FAULT
    if check_i32(tokens + start, T, V - 1, b"token id", fault):
        return STATUS_KERNEL_FAULT
    for t in range(T):
        row = tokens[start + t]
        for i in range(D):
            embd[t * D + i] = weight(table, row * D + i)
    cursor_out[0] = start + T
    return STATUS_OK


# --------------------------------------------------------------------------- model

cdef int qkv(
    const weight_t *norm, void **args, const double *params, fault_t *fault
) noexcept nogil:
    cdef const float *x = <const float *>args[0]
    cdef const weight_t *wq = <const weight_t *>args[2]
    cdef const weight_t *wk = <const weight_t *>args[3]
    cdef const weight_t *wv = <const weight_t *>args[4]
    cdef const int32_t *pos = <const int32_t *>args[5]
    cdef const int64_t *k_idxs = <const int64_t *>args[6]
    cdef const int64_t *v_idxs = <const int64_t *>args[7]
    cdef float *q = <float *>args[8]
    cdef float *k_cache = <float *>args[9]
    cdef float *v_cache = <float *>args[10]
    cdef int64_t T = <int64_t>params[0], D = <int64_t>params[1], H = <int64_t>params[2]
    cdef int64_t G = <int64_t>params[3], S = <int64_t>params[4], C = <int64_t>params[5]
    cdef double eps = params[6], theta = params[7], ratio, frequency
    cdef bint interleaved = params[8] != 0
    cdef int64_t pairs = S // 2, tile = tile_of(D), begin = 0, n, t, h, p, first, second, at
    cdef float normed[SCRATCH]
    cdef float cosine[TILE * MAX_PAIRS]
    cdef float sine[TILE * MAX_PAIRS]
    cdef float a[TILE]
    cdef float b[TILE]
    cdef float c, s
    if check_i32(pos, T, C - 1, b"position", fault):
        return STATUS_KERNEL_FAULT
    if check_i64(k_idxs, T, C - 1, b"k_idxs row", fault):
        return STATUS_KERNEL_FAULT
    if check_i64(v_idxs, T, C - 1, b"v_idxs row", fault):
        return STATUS_KERNEL_FAULT
    ratio = shrink_power(theta, -2.0 / <double>S)
    while begin < T:
        n = min(tile, T - begin)
        rms_norm(x + begin * D, norm, n, D, eps, normed)
        frequency = 1.0
        for p in range(pairs):
            for t in range(n):
                at = t * pairs + p
                cos_sin(<double>pos[begin + t] * frequency, cosine + at, sine + at)
            frequency *= ratio
        for h in range(H + G):             # the query heads, then the key heads
            for p in range(pairs):
                first = h * S + (2 * p if interleaved else p)
                second = first + (1 if interleaved else pairs)
                if h < H:
                    row_dots(normed, wq + first * D, n, D, a)
                    row_dots(normed, wq + second * D, n, D, b)
                else:
                    first -= H * S
                    second -= H * S
                    row_dots(normed, wk + first * D, n, D, a)
                    row_dots(normed, wk + second * D, n, D, b)
                for t in range(n):
                    c = cosine[t * pairs + p]
                    s = sine[t * pairs + p]
                    if h < H:
                        q[(begin + t) * H * S + first] = a[t] * c - b[t] * s
                        q[(begin + t) * H * S + second] = a[t] * s + b[t] * c
                    else:
                        at = k_idxs[begin + t] * G * S
                        k_cache[at + first] = a[t] * c - b[t] * s
                        k_cache[at + second] = a[t] * s + b[t] * c
        for first in range(G * S):
            row_dots(normed, wv + first * D, n, D, a)
            for t in range(n):
                v_cache[v_idxs[begin + t] * G * S + first] = a[t]
        begin += tile
    return STATUS_OK


cdef int attention(void **args, const double *params, fault_t *fault) noexcept nogil:
    cdef const float *q = <const float *>args[0]
    cdef const float *k_cache = <const float *>args[1]
    cdef const float *v_cache = <const float *>args[2]
    cdef const uint16_t *mask = <const uint16_t *>args[3]
    cdef float *out = <float *>args[4]
    cdef int64_t T = <int64_t>params[0], H = <int64_t>params[1], G = <int64_t>params[2]
    cdef int64_t S = <int64_t>params[3], C = <int64_t>params[4]
    cdef int64_t t, h, j, n, at, group
    cdef int32_t visible[MAX_CACHE]
    cdef float bias[MAX_CACHE]
    cdef float score[MAX_CACHE]
    for t in range(T):
        n = 0
        for j in range(C):
            if mask[t * C + j] != MASKED:
                visible[n] = <int32_t>j
                bias[n] = half_to_float(mask[t * C + j])
                n += 1
        for h in range(H):
            at = (t * H + h) * S
            group = h // (H // G) * S
            if n == 0:
                for j in range(S):
                    out[at + j] = 0.0
                continue
            for j in range(n):
                score[j] = bias[j]
            attend(
                q + at, k_cache + group, v_cache + group, G * S, visible, n, S, score, out + at
            )
    return STATUS_OK


cdef int project(
    const weight_t *w, void **args, const double *params, fault_t *fault
) noexcept nogil:
    cdef const float *a = <const float *>args[0]
    cdef const float *residual = <const float *>args[2]
    cdef float *out = <float *>args[3]
    cdef int64_t T = <int64_t>params[0], K = <int64_t>params[1], D = <int64_t>params[2]
    cdef int64_t begin = 0, n, t, i, at
    cdef float dots[TILE]
    while begin < T:
        n = min(<int64_t>TILE, T - begin)
        for i in range(D):
            row_dots(a + begin * K, w + i * K, n, K, dots)
            for t in range(n):
                at = (begin + t) * D + i
                out[at] = residual[at] + dots[t]
        begin += TILE
    return STATUS_OK


cdef int gate_up(
    const weight_t *norm, void **args, const double *params, fault_t *fault
) noexcept nogil:
    cdef const float *x = <const float *>args[0]
    cdef const weight_t *w_gate = <const weight_t *>args[2]
    cdef const weight_t *w_up = <const weight_t *>args[3]
    cdef float *h = <float *>args[4]
    cdef int64_t T = <int64_t>params[0], D = <int64_t>params[1], F = <int64_t>params[2]
    cdef double eps = params[3]
    cdef int64_t tile = tile_of(D), begin = 0, n, t, i
    cdef float normed[SCRATCH]
    cdef float gate[TILE]
    cdef float up[TILE]
    while begin < T:
        n = min(tile, T - begin)
        rms_norm(x + begin * D, norm, n, D, eps, normed)
        for i in range(F):
            row_dots(normed, w_gate + i * D, n, D, gate)
            row_dots(normed, w_up + i * D, n, D, up)
            for t in range(n):
                h[(begin + t) * F + i] = silu_f32(gate[t]) * up[t]
        begin += tile
    return STATUS_OK


cdef int logits(
    const weight_t *norm, void **args, const double *params, fault_t *fault
) noexcept nogil:
    cdef const float *x = <const float *>args[0]
    cdef const int32_t *out_ids = <const int32_t *>args[1]
    cdef const int32_t *pos = <const int32_t *>args[2]
    cdef const weight_t *w = <const weight_t *>args[4]
    cdef float *out = <float *>args[5]
    cdef float *tap = <float *>args[6]
    cdef int64_t T = <int64_t>params[0], D = <int64_t>params[1], V = <int64_t>params[2]
    cdef int64_t C = <int64_t>params[3], i, row
    cdef double eps = params[4]
    cdef float normed[MAX_ROW]
    if check_i32(out_ids, 1, T - 1, b"out_ids row", fault):
        return STATUS_KERNEL_FAULT
    row = out_ids[0]
    if check_i32(pos + row, 1, C - 1, b"position", fault):
        return STATUS_KERNEL_FAULT
    rms_norm(x + row * D, norm, 1, D, eps, normed)
    tap += pos[row] * V
    for i in range(V):
        row_dots(normed, w + i * D, 1, D, out + i)
        tap[i] = out[i]
    return STATUS_OK


# --------------------------------------------------------------------------- after the step

cdef int argmax(void **args, const double *params, fault_t *fault) noexcept nogil:
    cdef const float *values = <const float *>args[0]
    cdef int32_t *token = <int32_t *>args[1]
    cdef int64_t V = <int64_t>params[0], i, best = -1
    cdef float top = -INFINITY
    for i in range(V):
        if values[i] > top or (best < 0 and values[i] == top):
            top = values[i]
            best = i
    token[0] = <int32_t>max(best, <int64_t>0)
    return STATUS_OK


cdef struct scale_t:                       # what turns a logit into its weight
    float top
    float temperature


cdef inline uint64_t mass_of(float value, scale_t scale) noexcept nogil:
    return token_weight(value, scale.top, scale.temperature)


cdef uint32_t find_key(
    const float *logits, int64_t V, scale_t scale, bint by_mass, uint64_t wanted, uint64_t *above
) noexcept nogil:
    """Greatest key such that it and greater ones hold `wanted`: logits, or mass of their weights.

    `above` gets what greater keys hold.
    """
    cdef uint64_t held[N_DIGITS]
    cdef uint32_t key, known = 0, prefix = 0
    cdef int level, shift, digit
    cdef int64_t i
    above[0] = 0
    for level in range(N_LEVELS):
        shift = digit_shift(level)
        for digit in range(N_DIGITS):
            held[digit] = 0
        for i in range(V):
            key = order_key(logits[i])
            if key & known == prefix:
                held[(key >> shift) & (N_DIGITS - 1)] += mass_of(logits[i], scale) if by_mass else 1
        digit = N_DIGITS - 1
        while digit > 0 and above[0] + held[digit] < wanted:
            above[0] += held[digit]
            digit -= 1
        prefix |= <uint32_t>digit << shift
        known |= <uint32_t>(N_DIGITS - 1) << shift
    return prefix


cdef int sample(void **args, const double *params, fault_t *fault) noexcept nogil:
    """Draw a token; what is kept are all logits above `last`, and the first `n_ties` equal to it.

    Draws by the weights of shared_math.h, of the `top_k` greatest logits, of these the fewest
    greatest whose mass is at least `top_p` of theirs; of equal logits those that come first.  NaN
    is never drawn; if there is nothing else, the token is 0.
    """
    cdef const float *logits = <const float *>args[0]
    cdef const int32_t *pos = <const int32_t *>args[1]
    cdef int32_t *token = <int32_t *>args[2]
    cdef int64_t T = <int64_t>params[0], V = <int64_t>params[1], top_k = <int64_t>params[3]
    cdef float top_p = <float>params[4]
    cdef uint64_t seed = <uint64_t>params[5], above, total, tie, left, mass
    cdef scale_t scale
    cdef uint32_t key, last = 0
    cdef int64_t n_ties = V, i
    token[0] = 0
    key = 0
    for i in range(V):
        key = max(key, order_key(logits[i]))
    if key == 0:
        return STATUS_OK
    scale.top = float_of_key(key)
    scale.temperature = <float>params[2]
    if 0 < top_k < V:
        last = find_key(logits, V, scale, False, top_k, &above)
        n_ties = top_k - <int64_t>above
    tie = mass_of(float_of_key(last), scale)
    total = n_ties * tie
    for i in range(V):
        if order_key(logits[i]) > last:
            total += mass_of(logits[i], scale)
    if top_p < 1:
        mass = share_of(total, top_p)
        last = find_key(logits, V, scale, True, mass, &above)
        tie = mass_of(float_of_key(last), scale)
        n_ties = ties_for(mass - above, tie)
        total = above + n_ties * tie
    left = high_product(random_bits(seed, <uint64_t>(pos[T - 1]) + 1), total)
    for i in range(V):
        key = order_key(logits[i])
        if key < last:
            continue
        if key == last:
            if n_ties <= 0:
                continue
            n_ties -= 1
        mass = mass_of(logits[i], scale)
        if left < mass:
            token[0] = <int32_t>i
            break
        left -= mass
    return STATUS_OK


cdef int accept_token(void **args, const double *params, fault_t *fault) noexcept nogil:
    cdef const int32_t *token = <const int32_t *>args[0]
    cdef const int64_t *cursor = <const int64_t *>args[1]
    cdef int32_t *tokens = <int32_t *>args[2]
    cdef int64_t V = <int64_t>params[0], N = <int64_t>params[1]
    if check_i32(token, 1, V - 1, b"token id", fault):
        return STATUS_KERNEL_FAULT
    if check_i64(cursor, 1, N - 1, b"cursor", fault):
        return STATUS_KERNEL_FAULT
    tokens[cursor[0]] = token[0]
    return STATUS_OK


# --------------------------------------------------------------------------- the two weight types

cdef int embed_rows_f16(void **args, const double *params, fault_t *fault) noexcept nogil:
    return embed_rows(<const uint16_t *>args[2], args, params, fault)


cdef int embed_rows_f32(void **args, const double *params, fault_t *fault) noexcept nogil:
    return embed_rows(<const float *>args[2], args, params, fault)


cdef int qkv_f16(void **args, const double *params, fault_t *fault) noexcept nogil:
    return qkv(<const uint16_t *>args[1], args, params, fault)


cdef int qkv_f32(void **args, const double *params, fault_t *fault) noexcept nogil:
    return qkv(<const float *>args[1], args, params, fault)


cdef int project_f16(void **args, const double *params, fault_t *fault) noexcept nogil:
    return project(<const uint16_t *>args[1], args, params, fault)


cdef int project_f32(void **args, const double *params, fault_t *fault) noexcept nogil:
    return project(<const float *>args[1], args, params, fault)


cdef int gate_up_f16(void **args, const double *params, fault_t *fault) noexcept nogil:
    return gate_up(<const uint16_t *>args[1], args, params, fault)


cdef int gate_up_f32(void **args, const double *params, fault_t *fault) noexcept nogil:
    return gate_up(<const float *>args[1], args, params, fault)


cdef int logits_f16(void **args, const double *params, fault_t *fault) noexcept nogil:
    return logits(<const uint16_t *>args[3], args, params, fault)


cdef int logits_f32(void **args, const double *params, fault_t *fault) noexcept nogil:
    return logits(<const float *>args[3], args, params, fault)


FUNCTIONS = {
    "write_positions": <uintptr_t>write_positions,
    "write_kv_indices": <uintptr_t>write_kv_indices,
    "write_mask": <uintptr_t>write_mask,
    "write_out_ids": <uintptr_t>write_out_ids,
    "embed_rows_f16": <uintptr_t>embed_rows_f16,
    "embed_rows_f32": <uintptr_t>embed_rows_f32,
    "qkv_f16": <uintptr_t>qkv_f16,
    "qkv_f32": <uintptr_t>qkv_f32,
    "attention": <uintptr_t>attention,
    "project_f16": <uintptr_t>project_f16,
    "project_f32": <uintptr_t>project_f32,
    "gate_up_f16": <uintptr_t>gate_up_f16,
    "gate_up_f32": <uintptr_t>gate_up_f32,
    "logits_f16": <uintptr_t>logits_f16,
    "logits_f32": <uintptr_t>logits_f32,
    "argmax": <uintptr_t>argmax,
    "sample": <uintptr_t>sample,
    "accept_token": <uintptr_t>accept_token,
}
"""Address of each kernel's host twin, a `kernel_t`."""


def host_table(instances, double visible=0):
    """Return the kernel table of the host for kernel instances.

    Parameters
    ----------
    instances : iterable of syncscope.kernels.signature.Instance
    visible : float
        Rows of the KV cache that attention looks at, on average; it counts for costs alone.

    Returns
    -------
    KernelTable
    """
    cdef KernelTable table = KernelTable()
    cdef uintptr_t address
    for instance in instances:
        if instance.kernel.name not in FUNCTIONS:
            raise UsageError(f"kernel {instance.kernel.name} has no host twin")
        address = FUNCTIONS[instance.kernel.name]
        table.add(
            instance.name, <kernel_t>address, instance.params, work_of(instance, visible)
        )
    return table


def run_instance(KernelTable table, str name, arrays):
    """Run one kernel on arrays, for tests and for use without a scheduler.

    Parameters
    ----------
    table : KernelTable
    name : str
        Name of the instance.
    arrays : sequence of numpy.ndarray
        One for each argument, C-contiguous, of the argument's size.

    Raises
    ------
    KernelFault
        If the kernel refuses a value.
    """
    cdef int position = table.position(name), status
    cdef void *args[16]
    cdef fault_t fault
    cdef uintptr_t address
    cdef kernel_t function = table._function[position]
    cdef const double *params = table._param[position]
    if len(arrays) > 16:
        raise ValueError(f"{name}: more than 16 arguments")
    for i, array in enumerate(arrays):
        if not array.flags.c_contiguous:
            raise ValueError(f"{name}: argument {i} is not contiguous")
        address = array.ctypes.data
        args[i] = <void *>address
    with nogil:
        status = function(args, params, &fault)
    if status == STATUS_KERNEL_FAULT:
        what = (<bytes>fault.what).decode()
        raise KernelFault(0, name, what, fault.value, fault.low, fault.high)


def select_lanes(bint wide):
    """Choose the vector instructions: the widest here, or the baseline; the bits are the same.

    Returns
    -------
    bool
        Whether the wide ones are in use now.
    """
    global use_wide
    use_wide = wide and has_wide()
    return bool(use_wide)
