"""The seven verbs on a GPU, in C: each is one call of the driver, or little more.

A context must be current in the thread that issues.
"""
from libc.stdint cimport int64_t

from syncscope.sched_core.backend cimport (
    FLAG_BLOCKING,
    KIND_COPY,
    KIND_GRAPH,
    KIND_LAUNCH,
    KIND_RECORD,
    NO_KERNEL,
    SCOPE_DEVICE,
    SCOPE_EVENT,
    STATUS_NO_KERNEL,
    STATUS_OK,
    kernel_t,
    monotonic_ns,
    op_t,
)
from syncscope.sched_core.cuda_driver cimport (
    CU_CAPTURE_RELAXED,
    CUDA_SUCCESS,
    CUdeviceptr,
    CUgraph,
    CUresult,
    CUstream,
)


cdef CUresult _launch(cuda_state_t *s, launch_t *launch, CUstream stream) noexcept nogil:
    s.call = b"cuLaunchKernel"
    return s.driver.launch_kernel(
        launch.function, launch.grid[0], launch.grid[1], launch.grid[2],
        launch.block[0], launch.block[1], launch.block[2], launch.shared_nbytes, stream,
        launch.params, NULL)


cdef CUresult _copy(cuda_state_t *s, const op_t *op, CUstream stream) noexcept nogil:
    cdef int way = s.copy_way[op - s.rows]
    if way == COPY_TO_DEVICE:
        s.call = b"cuMemcpyHtoDAsync"
        return s.driver.memcpy_htod_async(<CUdeviceptr>op.dst, op.src, op.nbytes, stream)
    if way == COPY_TO_HOST:
        s.call = b"cuMemcpyDtoHAsync"
        return s.driver.memcpy_dtoh_async(op.dst, <CUdeviceptr>op.src, op.nbytes, stream)
    s.call = b"cuMemcpyDtoDAsync"
    return s.driver.memcpy_dtod_async(
        <CUdeviceptr>op.dst, <CUdeviceptr>op.src, op.nbytes, stream)


cdef CUresult _count_step(cuda_state_t *s, const op_t *op, CUstream stream,
                          int64_t step) noexcept nogil:
    """Let the device begin a step before it runs `op`; a graph does so itself."""
    cdef CUresult status = CUDA_SUCCESS
    if op.kind != KIND_GRAPH:
        status = _launch(s, &s.advance, stream)
    if status == CUDA_SUCCESS:
        s.step_of[s.counted % s.capacity] = step
        s.counted += 1
    return status


cdef CUresult _enqueue(cuda_state_t *s, const op_t *op) noexcept nogil:
    """Put an op on its stream; also while the stream is captured."""
    cdef CUstream stream = s.streams[op.stream]
    if op.kind == KIND_LAUNCH:
        return _launch(s, &s.launches[op - s.rows], stream)
    if op.kind == KIND_GRAPH:
        s.call = b"cuGraphLaunch"
        return s.driver.graph_launch(s.graphs[op - s.rows], stream)
    if op.kind == KIND_COPY:
        return _copy(s, op, stream)
    if op.kind == KIND_RECORD:
        s.call = b"cuEventRecord"
        return s.driver.event_record(s.events[op.event], stream)
    s.call = b"cuStreamWaitEvent"
    return s.driver.stream_wait_event(stream, s.events[op.event], 0)


cdef CUresult _enqueue_timed(cuda_state_t *s, const op_t *op, int64_t step) noexcept nogil:
    """Put an op on its stream, between two events."""
    cdef CUstream stream = s.streams[op.stream]
    cdef timed_op_t *timed = &s.timed_ops[s.timed % s.timed_capacity]
    cdef CUresult status
    s.call = b"cuEventRecord (time)"
    status = s.driver.event_record(timed.begin, stream)
    if status == CUDA_SUCCESS:
        status = _enqueue(s, op)
    if status == CUDA_SUCCESS:
        s.call = b"cuEventRecord (time)"
        status = s.driver.event_record(timed.end, stream)
    timed.row = op - s.rows
    timed.step = step
    s.timed += status == CUDA_SUCCESS
    return status


cdef int _failed(cuda_state_t *s, const op_t *op, int64_t step, CUresult status) noexcept nogil:
    s.failed = status
    s.fault_step = step
    s.fault_row = op - s.rows
    return STATUS_DRIVER


cdef int device_verb(void *self, const op_t *op, int64_t step) noexcept nogil:
    """LAUNCH, COPY, RECORD, WAIT, GRAPH."""
    cdef cuda_state_t *s = <cuda_state_t *>self
    cdef CUresult status = CUDA_SUCCESS
    if s.starts[op - s.rows]:
        status = _count_step(s, op, s.streams[op.stream], step)
    if status == CUDA_SUCCESS:
        if s.is_timed != NULL and s.is_timed[op - s.rows]:
            status = _enqueue_timed(s, op, step)
        else:
            status = _enqueue(s, op)
    if status == CUDA_SUCCESS and op.flags & FLAG_BLOCKING and op.kind == KIND_COPY:
        s.call = b"cuStreamSynchronize"
        status = s.driver.stream_synchronize(s.streams[op.stream])
    if status != CUDA_SUCCESS:
        return _failed(s, op, step, status)
    return STATUS_OK


cdef int sync_verb(void *self, const op_t *op, int64_t step) noexcept nogil:
    """SYNC: of a stream, an event or the device; then see whether a kernel refused a value."""
    cdef cuda_state_t *s = <cuda_state_t *>self
    cdef CUresult status
    if op.scope == SCOPE_EVENT:
        s.call = b"cuEventSynchronize"
        status = s.driver.event_synchronize(s.events[op.event])
    elif op.scope == SCOPE_DEVICE:
        s.call = b"cuCtxSynchronize"
        status = s.driver.ctx_synchronize()
    else:
        s.call = b"cuStreamSynchronize"
        status = s.driver.stream_synchronize(s.streams[op.stream])
    if status != CUDA_SUCCESS:
        return _failed(s, op, step, status)
    if s.device_fault.set:
        s.fault_step = step
        s.fault_row = op - s.rows
        return STATUS_DEVICE_FAULT
    return STATUS_OK


cdef int host_verb(void *self, const op_t *op, int64_t step) noexcept nogil:
    """HOST: run the host twin."""
    cdef cuda_state_t *s = <cuda_state_t *>self
    cdef kernel_t kernel = NULL if op.kernel == NO_KERNEL else s.kernels[op.kernel]
    cdef int status = STATUS_NO_KERNEL
    if kernel != NULL:
        status = kernel(<void **>op.dst, s.params[op.kernel], s.fault)
    if status != STATUS_OK:
        s.fault_step = step
        s.fault_row = op - s.rows
    return status


cdef int64_t cuda_now_ns(void *self) noexcept nogil:
    return monotonic_ns(NULL) - (<cuda_state_t *>self).base_ns


cdef CUresult capture_graph(cuda_state_t *s, int64_t row) noexcept nogil:
    """Capture the members of a GRAPH row on its stream, and make them ready to be launched."""
    cdef const op_t *graph_op = &s.rows[row]
    cdef const op_t *members = <const op_t *>graph_op.dst
    cdef CUstream stream = s.streams[graph_op.stream]
    cdef CUgraph graph = NULL
    cdef CUresult status, ended
    cdef int64_t i
    cdef const char *call
    s.call = b"cuStreamBeginCapture"
    status = s.driver.stream_begin_capture(stream, CU_CAPTURE_RELAXED)
    if status != CUDA_SUCCESS:
        return status
    if s.starts[row]:
        status = _launch(s, &s.advance, stream)
    for i in range(graph_op.nbytes):
        if status == CUDA_SUCCESS:
            status = _enqueue(s, &members[i])
    call = s.call
    ended = s.driver.stream_end_capture(stream, &graph)
    if status == CUDA_SUCCESS and ended != CUDA_SUCCESS:
        call = b"cuStreamEndCapture"
        status = ended
    if status == CUDA_SUCCESS:
        call = b"cuGraphInstantiate"
        status = s.driver.graph_instantiate(&s.graphs[row], graph, 0)
    if status == CUDA_SUCCESS:
        call = b"cuGraphUpload"
        status = s.driver.graph_upload(s.graphs[row], stream)
    if graph != NULL:
        s.driver.graph_destroy(graph)
    s.call = call
    return status
