"""Launches of a program's kernels on a GPU, ready to be issued."""
from syncscope.sched_core.cuda_driver cimport CUfunction, cuda_t
from syncscope.sched_core.cuda_issue cimport cuda_state_t, launch_t


cdef class Launches:
    cdef const cuda_t *_driver
    cdef cuda_state_t *_state
    cdef dict _kernels                     # instance name -> DeviceKernel
    cdef dict _modules, _functions         # cubin -> handle; (cubin, name) -> handle
    cdef list _arrays                      # what the bound launches point into
    cdef CUfunction _find(self, kernel) except NULL
    cdef int _fill(self, launch_t *launch, kernel) except -1
    cdef int prepare(self, program, rows, addresses, slot, int n_slots, addresses_of_own) except -1
    cdef int close(self) except -1

cdef Launches make_launches(cuda_state_t *state, kernels)
