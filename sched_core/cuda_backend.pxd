"""A GPU behind the verbs."""
from libc.stdint cimport int64_t

from syncscope.sched_core.backend cimport Backend, KernelTable
from syncscope.sched_core.cuda_driver cimport CUfunction, CUstream, cuda_t
from syncscope.sched_core.cuda_issue cimport cuda_state_t, fault_record_t, launch_t
from syncscope.sched_core.device_clock cimport DeviceClock
from syncscope.sched_core.recorder cimport SpanRing


cdef class CudaBackend(Backend):
    cdef object __weakref__
    cdef cuda_state_t cuda
    cdef const cuda_t *driver
    cdef KernelTable kernels
    cdef readonly object gpu               # cuda_driver.GPU
    cdef readonly str wait
    cdef readonly str record
    cdef readonly object base_ns           # wall clock at time 0; 0 before the first bind
    cdef readonly DeviceClock clock        # None: no stamps
    cdef object _drv, _context, _thread    # PyCUDA's driver module, its context, their thread
    cdef dict _device_kernels, _faults
    cdef dict _slots                       # (buffer, slot) -> _Memory
    cdef dict _contents                    # given contents by buffer name
    cdef dict _modules, _functions         # cubin -> handle; (cubin, name) -> handle
    cdef list _streams, _events, _graphs   # handles that are ours to destroy
    cdef dict _arrays                      # what the state points into
    cdef dict _extra                       # memory of our own: fault, clock, stamps
    cdef SpanRing _ring
    cdef object _program
    cdef CUstream _side                    # carries what belongs to no plan
    cdef object _first, _bounds, _last_end  # of stamps: a row per slot, copies, per stream
    cdef int64_t _collected
    cdef int _release(self) except -1
    cdef int _unbind(self) except -1
    cdef object _bind(self, program, SpanRing ring)
    cdef object _allocate(self, program)
    cdef object _resolve(self, program)
    cdef object _make_streams(self, program)
    cdef object _prepare_launches(self, program, addresses, slot)
    cdef int _fill_launch(self, launch_t *launch, kernel) except -1
    cdef object _prepare_stamps(self, program, slot)
    cdef object _capture(self, program)
    cdef CUfunction _function(self, kernel) except NULL
    cdef object _read_stamps(self)
