"""The simulated device."""
from libc.stdint cimport int64_t

from syncscope.sched_core.backend cimport Backend, KernelTable
from syncscope.sched_core.machine cimport Machine, machine_t
from syncscope.sched_core.memory cimport Memory, memory_t


ctypedef struct sim_t:
    machine_t *machine
    memory_t *memory


cdef class SimBackend(Backend):
    cdef sim_t sim
    cdef Machine machine
    cdef Memory memory
    cdef KernelTable kernels
    cdef readonly object profile
    cdef public object late                # names of the streams whose ops take effect late
    cdef readonly bint compute
    cdef readonly str rules
    cdef dict _slots                       # (buffer, slot) -> array of bytes
    cdef dict _contents                    # given contents by buffer name
    cdef list _arguments                   # argument arrays that bound rows point into
    cdef object _program
    cdef int64_t[3] _counted               # stale, wrong last, without effect: of earlier programs
    cdef object _allocate(self, buffers)
    cdef object _resolve(self, program)
    cdef list _harms(self, bint write)
