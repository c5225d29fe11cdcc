"""Puts a GPU's `%globaltimer` on the host's clock, by readings bracketed between two of the host.

A kernel of one thread answers the host through pinned memory: the host notes its time, asks, sees
the answer with the device's time, and notes its time again.  The tightest of several rounds counts:
the device's time lies between the two, so half their distance is the uncertainty.
"""
from libc.stdint cimport int64_t, uint64_t

from syncscope.sched_core.backend cimport address, monotonic_ns
from syncscope.sched_core.cuda_driver cimport (
    CUDA_SUCCESS,
    CUfunction,
    CUresult,
    CUstream,
    check,
    cuda_driver,
    cuda_t,
)

cdef extern from *:
    """
    #ifdef _MSC_VER
    #include <intrin.h>
    #define order_memory() _ReadWriteBarrier()
    #else
    #define order_memory() __sync_synchronize()
    #endif
    """
    void order_memory() nogil

cdef enum:
    ROUNDS = 24
    GIVE_UP_NS = 200000000                 # longer than the kernel waits for the host
    REALIGN_NS = 100000000                 # clocks drift by a few microseconds a second
    ASKED = 0
    ANSWERED = 1
    TIME = 2
    TIMER_STEP = 3

# Answers `rounds` questions, waiting at most 50 ms for each, and finds the timer's step first.
# In PTX, which the driver compiles for any GPU, so that no compiler is needed.
CLOCK_PTX = b"""
.version 6.3
.target sm_70
.address_size 64
.visible .entry clock_rounds(.param .u64 record, .param .u64 rounds)
{
    .reg .pred %p<4>;
    .reg .b32 %changes;
    .reg .b64 %record, %rounds, %begin, %last, %now, %least, %round, %asked, %passed;

    ld.param.u64        %record, [record];
    ld.param.u64        %rounds, [rounds];
    cvta.to.global.u64  %record, %record;
    mov.u64             %begin, %globaltimer;
    mov.u64             %last, %begin;
    mov.u64             %least, -1;
    mov.u32             %changes, 0;
STEP:
    mov.u64             %now, %globaltimer;
    sub.s64             %passed, %now, %last;
    setp.eq.u64         %p0, %passed, 0;
    @%p0 bra            STEP;
    min.u64             %least, %least, %passed;
    mov.u64             %last, %now;
    add.u32             %changes, %changes, 1;
    setp.lt.u32         %p1, %changes, 16;
    @%p1 bra            STEP;
    st.volatile.global.u64 [%record+24], %least;
    mov.u64             %round, 1;
ROUND:
    setp.gt.u64         %p2, %round, %rounds;
    @%p2 bra            DONE;
    mov.u64             %begin, %globaltimer;
WAIT:
    ld.volatile.global.u64 %asked, [%record];
    setp.ge.u64         %p3, %asked, %round;
    @%p3 bra            ANSWER;
    mov.u64             %now, %globaltimer;
    sub.s64             %passed, %now, %begin;
    setp.lt.u64         %p0, %passed, 50000000;
    @%p0 bra            WAIT;
    bra                 DONE;
ANSWER:
    mov.u64             %now, %globaltimer;
    st.volatile.global.u64 [%record+16], %now;
    membar.sys;
    st.volatile.global.u64 [%record+8], %round;
    add.u64             %round, %round, 1;
    bra                 ROUND;
DONE:
    ret;
}
"""


cdef CUresult _start(const cuda_t *driver, CUfunction function, CUstream stream, size_t record,
                     uint64_t rounds) noexcept nogil:
    cdef void *params[2]
    params[0] = &record
    params[1] = &rounds
    return driver.launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL)


cdef CUresult _bracket(const cuda_t *driver, CUfunction function, CUstream stream,
                       volatile uint64_t *record, int64_t *begin, int64_t *end,
                       int64_t *device) noexcept nogil:
    """Find the tightest bracket, [begin, end] of the host around a time of the device."""
    cdef int64_t before, after, i
    cdef CUresult status
    record[ASKED] = record[ANSWERED] = 0
    begin[0] = 0
    end[0] = GIVE_UP_NS
    status = _start(driver, function, stream, <size_t>record, ROUNDS)
    if status != CUDA_SUCCESS:
        return status
    for i in range(1, ROUNDS + 1):
        before = after = monotonic_ns(NULL)
        order_memory()
        record[ASKED] = i
        while record[ANSWERED] < <uint64_t>i and after - before < GIVE_UP_NS:
            after = monotonic_ns(NULL)
        order_memory()
        after = monotonic_ns(NULL)
        if record[ANSWERED] < <uint64_t>i:
            break
        if after - before < end[0] - begin[0]:
            begin[0] = before
            end[0] = after
            device[0] = <int64_t>record[TIME]
    record[ASKED] = ROUNDS
    status = driver.stream_synchronize(stream)
    if status != CUDA_SUCCESS or end[0] - begin[0] < GIVE_UP_NS:
        return status
    begin[0] = monotonic_ns(NULL)          # no talk while a kernel runs: bracket a whole launch
    status = _start(driver, function, stream, <size_t>record, 1)
    if status == CUDA_SUCCESS:
        status = driver.stream_synchronize(stream)
    end[0] = monotonic_ns(NULL)
    device[0] = <int64_t>record[TIME]
    return status


cdef class DeviceClock:
    """Reads a GPU's timer and turns its times into the host's.

    Its context must be current whenever it is used.

    Parameters
    ----------
    pinned : ndarray of uint8
        At least 32 bytes of page-locked memory.
    base_ns : int
        The host's monotonic time that counts as 0.
    """

    def __init__(self, pinned, int64_t base_ns):
        cdef bytes text = CLOCK_PTX
        cdef const unsigned char *image = text
        self._driver = cuda_driver()
        self._pinned = pinned
        self._record = <volatile uint64_t *>address(pinned)
        self._base_ns = base_ns
        check(self._driver.module_load_data(&self._module, image), b"cuModuleLoadData (clock)")
        check(
            self._driver.module_get_function(&self._function, self._module, b"clock_rounds"),
            b"cuModuleGetFunction (clock)",
        )

    cdef int align(self, CUstream stream) except -1:
        """Bracket a reading, on an idle stream; not more often than clocks drift apart."""
        cdef int64_t begin = 0, end = 0, device = 0, host
        cdef CUresult status
        if self._is_aligned and monotonic_ns(NULL) - self._base_ns - self._host < REALIGN_NS:
            return 0
        with nogil:
            status = _bracket(self._driver, self._function, stream, self._record, &begin, &end,
                              &device)
        check(status, b"cuLaunchKernel (clock)")
        host = begin + (end - begin) // 2 - self._base_ns
        if self._is_aligned and device > self._device:
            self._drift = <double>(host - self._host) / <double>(device - self._device) - 1.0
        self._host, self._device = host, device
        self._is_aligned = True
        self.uncertainty_ns = max(self.uncertainty_ns, (end - begin + 1) // 2)
        self.timer_step_ns = <int64_t>self._record[TIMER_STEP]
        return 0

    cdef int rebase(self, int64_t base_ns) except -1:
        """Count from another time of the host."""
        self._host += self._base_ns - base_ns
        self._base_ns = base_ns
        return 0

    def to_host(self, times):
        """Return the host's times of an array of the device's, int64."""
        passed = times - self._device
        return self._host + passed + (passed * self._drift).astype("i8")

    cdef int close(self) except -1:
        """Unload the kernel."""
        if self._module != NULL:
            self._driver.module_unload(self._module)
            self._module = NULL
        return 0
