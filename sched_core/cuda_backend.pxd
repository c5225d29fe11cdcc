"""A GPU behind the verbs."""
from syncscope.sched_core.backend cimport Backend, KernelTable
from syncscope.sched_core.cuda_driver cimport CUstream, cuda_t
from syncscope.sched_core.cuda_issue cimport cuda_state_t
from syncscope.sched_core.cuda_launches cimport Launches
from syncscope.sched_core.device_times cimport DeviceTimes
from syncscope.sched_core.recorder cimport SpanRing


cdef class CudaBackend(Backend):
    cdef object __weakref__
    cdef cuda_state_t cuda
    cdef const cuda_t *driver
    cdef KernelTable kernels
    cdef Launches launches
    cdef DeviceTimes times
    cdef readonly object gpu               # cuda_driver.GPU
    cdef readonly str wait
    cdef readonly str record
    cdef readonly object base_ns           # wall clock at time 0; 0 before the first bind
    cdef object _drv, _context, _thread    # PyCUDA's driver module, its context, their thread
    cdef dict _faults
    cdef dict _slots                       # (buffer, slot) -> Memory
    cdef dict _contents                    # given contents by buffer name
    cdef list _streams, _events, _graphs   # handles that are ours to destroy
    cdef dict _arrays                      # what the state points into
    cdef dict _extra                       # memory of our own: fault, clock, stamps
    cdef SpanRing _ring
    cdef CUstream _side                    # carries what belongs to no plan
    cdef object _first                     # a row of each slot
    cdef object _written                   # names of the buffers that the bound program writes
    cdef int _release(self) except -1
    cdef int _unbind(self) except -1
    cdef object _bind(self, program, SpanRing ring)
    cdef object _allocate(self, program)
    cdef object _resolve(self, program)
    cdef object _make_streams(self, program)
    cdef object _capture(self, program)
