"""C layout of issued ops, spans, kernels and the verbs of a backend (see program.py for numpy)."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t

cdef enum:  # status of a verb
    STATUS_OK = 0
    STATUS_KERNEL_FAULT = 1      # a kernel refused a value; see fault_t
    STATUS_NO_KERNEL = 2         # the op has no kernel on this backend
    STATUS_STOPPED = 3           # the run was asked to stop between two steps

cdef enum:  # op_t.kind, as records.Kind
    KIND_HOST = 0
    KIND_LAUNCH = 1
    KIND_COPY = 2
    KIND_RECORD = 3
    KIND_WAIT = 4
    KIND_SYNC = 5
    KIND_GRAPH = 6
    N_VERBS = 7                  # of the kinds before, the ones below occur in Programs only
    KIND_MEMSET = 7
    KIND_ALLOC = 8
    KIND_FREE = 9

cdef enum:  # memory of a buffer, in the order of program.MEMORY; the last two are a device's
    MEMORY_PINNED = 0
    MEMORY_PAGEABLE = 1
    MEMORY_DEVICE = 2
    MEMORY_MANAGED = 3

cdef enum:  # op_t.flags
    FLAG_BLOCKING = 1
    FLAG_PDL = 2                 # programmatic dependent launch
    FLAG_GRID_SYNC = 4           # ... of a kernel that waits for the one before it

cdef enum:  # op_t.scope
    SCOPE_STREAM = 0
    SCOPE_EVENT = 1
    SCOPE_DEVICE = 2

cdef enum:  # op_t.kernel
    NO_KERNEL = 0xFFFF

cdef enum:  # span_t.role
    ROLE_CALL = 0
    ROLE_EXEC = 1

cdef enum:  # span_t.flags
    SPAN_BOUNDED = 1             # begin and end are bounds: it ran somewhere between them
    SPAN_LOWER_BOUND = 2         # it may have ended a little later

ctypedef struct op_t:                      # 64 B, one cache line; numpy dtype program.OP
    int32_t site, step
    uint8_t kind, flags, scope, pad
    int32_t stream, event, graph
    int32_t access0
    uint16_t n_access, kernel
    uint32_t thread
    int64_t nbytes
    void *dst                              # copy: target; kernel: void **args; graph: first member
    const void *src                        # copy: source; else const int64_t *count or NULL

ctypedef struct access_t:                  # 24 B; numpy dtype program.ACCESS
    int32_t buffer
    uint16_t slot
    uint8_t write, known
    int64_t begin, end

ctypedef struct span_t:                    # 32 B; numpy dtype recorder.SPAN
    int64_t begin_ns, end_ns
    int32_t op, step
    uint16_t lane
    uint8_t role, flags
    uint32_t nbytes

ctypedef struct fault_t:                   # why a kernel refused
    int64_t value, low, high
    const char *what

ctypedef int (*kernel_t)(void **args, const double *params, fault_t *fault) noexcept nogil
ctypedef int (*verb_t)(void *self, const op_t *op, int64_t step) noexcept nogil

ctypedef struct backend_vt:
    verb_t verb[7]
    int64_t (*now_ns)(void *self) noexcept nogil

cdef class KernelTable:
    cdef readonly dict index               # name -> position
    cdef readonly dict work                # name -> costs.Work of one run
    cdef list _params                      # keeps the parameter arrays alive
    cdef kernel_t *_function
    cdef double **_param
    cdef int _capacity
    cdef int add(self, str name, kernel_t function, object params, object work) except -1


cdef class Backend:
    cdef backend_vt vt
    cdef void *state                       # first argument of each verb
    cdef fault_t fault                     # filled in when a kernel refuses a value
    cdef int64_t fault_step
    cdef int64_t fault_row                 # position in the bound program, members after ops
    cdef readonly object rows              # bound OP rows, members after ops, or None
    cdef int64_t n_ops                     # of them, how many are issued
    cdef op_t *table                       # address of rows


cdef int64_t monotonic_ns(void *self) noexcept nogil
cdef size_t address(array) except 0
