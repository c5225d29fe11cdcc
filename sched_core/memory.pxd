"""Data order of the simulator: when each op takes effect, and whose bytes it then finds."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from syncscope.sched_core.backend cimport fault_t, kernel_t, op_t


cdef enum:
    MAX_PENDING = 4096                     # pending device ops before the oldest is forced
    MAX_STAGED = 64                        # pending copies from pageable memory, likewise

ctypedef struct touch_t:                   # one access, resolved
    int32_t cell0, n_cells                 # elementary byte ranges; none if never written
    uint8_t write

ctypedef struct harm_t:                    # the first stale read, or wrong last write, of an access
    int64_t step, row, access
    int64_t expected, found                # versions; of a write its own, and the newer one there
    int64_t write

ctypedef struct node_t:                    # an issued op that has not taken effect yet
    const op_t *op
    int64_t step
    int64_t depends                        # node that a WAIT waits for, -1 none
    int64_t next                           # next node of the same stream, -1 none
    int64_t expected0                      # where its expected versions stand
    int32_t stream
    int32_t staged                         # staging slot of a copy from pageable memory, -1 none
    uint8_t done

ctypedef struct memory_t:
    const op_t *rows
    const touch_t *touches                 # per access of the program
    int64_t *issued                        # per cell: version of the last write issued
    int64_t *present                       # per cell: version of the bytes now there
    int64_t version                        # writes issued so far
    uint8_t *late                          # per stream
    int64_t *stream_head                   # per stream: oldest pending node, -1 none
    int64_t *stream_tail
    int32_t *stream_device
    uint8_t *stream_kind
    int32_t n_streams
    int64_t *event_node                    # per event instance: node of its last record, -1 never
    node_t *nodes                          # ring of MAX_PENDING
    int64_t n_nodes                        # nodes made so far
    int64_t oldest                         # no node before this one is pending
    int64_t *expected                      # ring of expected versions
    int64_t expected_mask, expected_head
    uint8_t *staging
    int64_t staging_nbytes                 # of one slot
    uint8_t *staging_used
    const uint8_t *memory                  # per buffer: MEMORY_...
    const int32_t *access_buffer           # per access
    const kernel_t *kernels                # per Program.kernels
    double **params
    int compute                            # 0: versions only, no bytes
    int strict                             # obeys `strict` rules
    int64_t stale_reads, wrong_last_writes, waits_without_effect
    harm_t *harms                          # one per access at most, in order of occurrence
    int64_t n_harms
    uint8_t *is_kept                       # per access: whether its harm is among them
    fault_t *fault
    int64_t fault_step, fault_row
    int status                             # once not OK, nothing takes effect any more


cdef int memory_issue(memory_t *m, const op_t *op, int64_t step) noexcept nogil


cdef class Memory:
    cdef memory_t state
    cdef dict _arrays
    cdef fault_t _fault
