"""The verbs on a GPU: what they work on, and the C functions."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from syncscope.sched_core.backend cimport fault_t, kernel_t, op_t
from syncscope.sched_core.cuda_driver cimport (
    CUevent,
    CUfunction,
    CUgraphExec,
    CUresult,
    CUstream,
    cuda_t,
)

cdef enum:  # status of a verb, beside those of backend.pxd
    STATUS_DRIVER = 64           # the driver refused a call
    STATUS_DEVICE_FAULT = 65     # a kernel on the device refused a value; see fault_record_t

cdef enum:  # cuda_t has a function for each
    COPY_TO_DEVICE = 0
    COPY_TO_HOST = 1
    COPY_ON_DEVICE = 2

ctypedef struct fault_record_t:  # what kernels write, in pinned memory; layout as theirs
    int set
    int kernel_slot
    long long value, low, high
    int what

ctypedef struct stamp_record_t:  # what a launch writes, in device memory; layout as theirs
    unsigned long long begin, end

ctypedef struct counter_record_t:  # what advance_step keeps, in device memory; layout as its
    unsigned long long row       # of the ring, for the step that runs: an address
    unsigned long long first, last
    long long step               # that runs, from 0; -1 before the first

ctypedef struct launch_t:
    CUfunction function
    unsigned int grid[3]
    unsigned int block[3]
    unsigned int shared_nbytes
    void **params

ctypedef struct timed_op_t:                # an op between two events
    CUevent begin, end
    int64_t row, step

ctypedef struct cuda_state_t:
    const cuda_t *driver
    const op_t *rows
    CUstream *streams                      # per stream of the program
    CUevent *events                        # per event instance
    launch_t *launches                     # per row; zero for what launches nothing
    CUgraphExec *graphs                    # per row; NULL for what is no graph
    const uint8_t *copy_way                # per row
    const uint8_t *starts                  # per row: whether it begins a step of the stamps
    launch_t advance                       # begins a step on the device
    int64_t *step_of                       # ring: number of each step that was counted
    int64_t capacity
    int64_t counted                        # steps so far
    const uint8_t *is_timed                # per row: whether events go around it; NULL: around none
    timed_op_t *timed_ops                  # ring
    int64_t timed_capacity
    int64_t timed                          # ops so far
    const kernel_t *kernels                # host twins, per Program.kernels
    double **params
    fault_t *fault                         # of host kernels
    volatile fault_record_t *device_fault
    const char *call                       # of the driver, the last
    CUresult failed                        # what it returned if it failed
    int64_t fault_step, fault_row
    int64_t base_ns                        # host time that counts as 0


cdef int host_verb(void *self, const op_t *op, int64_t step) noexcept nogil
cdef int device_verb(void *self, const op_t *op, int64_t step) noexcept nogil
cdef int sync_verb(void *self, const op_t *op, int64_t step) noexcept nogil
cdef int64_t cuda_now_ns(void *self) noexcept nogil
cdef CUresult capture_graph(cuda_state_t *s, int64_t row) noexcept nogil
