/* A driver without a GPU: streams are in order, work takes time, copies copy, kernels do nothing.
 *
 * A kernel named k<n> takes n times 1,024 ns, any other one 1,024 ns, and so does a copy.  Memory is
 * the host's.  A kernel named f<n> has n arguments and refuses a value in its sixth launch.
 * No kernel stamps its times; only that which answers for the clock does what it should.
 */
#include "fake.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, NOT_READY = 600, MAX_NODES = 512 };
enum { WITHOUT_TIMING = 2, TICK_NS = 1024, CLOCK = 1 << 20 };

typedef struct { int64_t ns; unsigned flags; } event_t;
typedef struct { int is_copy; int64_t duration_ns; void *dst; const void *src; size_t nbytes; } node_t;
typedef struct { int n; node_t nodes[MAX_NODES]; } graph_t;
typedef struct { int64_t end_ns; graph_t *captured; } stream_t;

int fake_live_objects;                              /* streams, events, graphs, modules */
static stream_t default_streams[3];                 /* handles 0, 1 and 2 */
static int64_t last_end_ns;

int64_t fake_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void wait_until(int64_t ns) { while (fake_now_ns() < ns) {} }

static stream_t *stream_of(void *handle) {
    return (uintptr_t)handle <= 2 ? &default_streams[(uintptr_t)handle] : handle;
}

static void *new_object(size_t nbytes) { fake_live_objects++; return calloc(1, nbytes); }
static int destroy(void *object) { fake_live_objects--; free(object); return SUCCESS; }

static void run(stream_t *stream, const node_t *node, uint32_t correlation) {
    int64_t now = fake_now_ns(), begin = (now > stream->end_ns ? now : stream->end_ns) + 320;
    begin -= begin % 32;                            /* the device counts in steps of 32 ns */
    stream->end_ns = begin + node->duration_ns;
    if (stream->end_ns > last_end_ns) last_end_ns = stream->end_ns;
    if (node->is_copy) memcpy(node->dst, node->src, node->nbytes);
    if (!node->is_copy || node->nbytes) fake_work(correlation, node->is_copy, begin, stream->end_ns);
}

static int enqueue(void *handle, node_t node, const char *function) {
    uint32_t correlation = fake_call_begins();
    int64_t begin = fake_now_ns();
    stream_t *stream = stream_of(handle);
    if (stream->captured) stream->captured->nodes[stream->captured->n++] = node;
    else run(stream, &node, correlation);
    fake_call_ends(correlation, function, begin);
    return SUCCESS;
}

#define CALL(name, action) \
    uint32_t correlation = fake_call_begins(); \
    int64_t begin = fake_now_ns(); \
    action; \
    fake_call_ends(correlation, name, begin); \
    return SUCCESS

int cuInit(unsigned flags) { return SUCCESS; }
int cuDriverGetVersion(int *version) { *version = 13000; return SUCCESS; }
int cuGetErrorName(int status, const char **text) { *text = "CUDA_ERROR_FAKE"; return SUCCESS; }
int cuGetErrorString(int status, const char **text) { *text = "pretended"; return SUCCESS; }
int cuDeviceGetCount(int *count) { *count = 1; return SUCCESS; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return SUCCESS; }
int cuDeviceGetName(char *name, int length, int device) {
    strncpy(name, "Pretended GPU", (size_t)length);
    return SUCCESS;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 75 ? 9 : 0;
    return SUCCESS;
}
int cuDeviceTotalMem_v2(size_t *nbytes, int device) { *nbytes = (size_t)1 << 34; return SUCCESS; }

int cuModuleLoadData(void **module, const void *image) { *module = new_object(1); return SUCCESS; }
int cuModuleUnload(void *module) { return destroy(module); }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    int number = strcmp(name, "clock_rounds") ? atoi(name + 1) : CLOCK;
    *function = (void *)(intptr_t)(name[0] == 'f' && number ? -number : number ? number : 1);
    return SUCCESS;
}
int cuFuncSetAttribute(void *function, int attribute, int value) { return SUCCESS; }
int cuFuncLoad(void *function) { return SUCCESS; }

typedef struct { volatile uint64_t *record; uint64_t rounds; } clock_rounds_t;
static pthread_t clock_thread;
static int clock_runs;

static void *answer(void *argument) {
    clock_rounds_t asked = *(clock_rounds_t *)argument;
    free(argument);
    asked.record[3] = 32;
    for (uint64_t round = 1; round <= asked.rounds; round++) {
        int64_t since = fake_now_ns();
        while (asked.record[0] < round)
            if (fake_now_ns() - since > 50000000) return NULL;
        asked.record[2] = (uint64_t)(fake_now_ns() / 32 * 32);
        __sync_synchronize();
        asked.record[1] = round;
    }
    return NULL;
}

static int launch_clock(void **params) {
    clock_rounds_t *asked = malloc(sizeof *asked);
    asked->record = *(volatile uint64_t **)params[0];
    asked->rounds = *(uint64_t *)params[1];
    clock_runs = 1;
    return pthread_create(&clock_thread, NULL, answer, asked);
}

static void wait_for_clock(void) {
    if (clock_runs) pthread_join(clock_thread, NULL);
    clock_runs = 0;
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **params, void **extra) {
    if ((intptr_t)function == CLOCK) return launch_clock(params);
    static int n_launched;
    intptr_t number = (intptr_t)function;
    node_t node = {0, (number > 0 ? number : 1) * TICK_NS, NULL, NULL, 0};
    if (number < 0 && ++n_launched == 6) **(int **)params[-number] = 1;
    return enqueue(stream, node, "cuLaunchKernel");
}
int cuMemcpyHtoDAsync_v2(uintptr_t dst, const void *src, size_t nbytes, void *stream) {
    node_t node = {1, TICK_NS, (void *)dst, src, nbytes};
    return enqueue(stream, node, "cuMemcpyHtoDAsync_v2");
}
int cuMemcpyDtoHAsync_v2(void *dst, uintptr_t src, size_t nbytes, void *stream) {
    node_t node = {1, TICK_NS, dst, (void *)src, nbytes};
    return enqueue(stream, node, "cuMemcpyDtoHAsync_v2");
}
int cuMemcpyDtoDAsync_v2(uintptr_t dst, uintptr_t src, size_t nbytes, void *stream) {
    node_t node = {1, TICK_NS, (void *)dst, (void *)src, nbytes};
    return enqueue(stream, node, "cuMemcpyDtoDAsync_v2");
}
int cuMemsetD8Async(uintptr_t dst, unsigned char value, size_t nbytes, void *stream) {
    memset((void *)dst, value, nbytes);
    return SUCCESS;
}

int cuStreamCreate(void **stream, unsigned flags) {
    *stream = new_object(sizeof(stream_t));
    return SUCCESS;
}
int cuStreamDestroy_v2(void *stream) { return destroy(stream); }
int cuStreamSynchronize(void *stream) {
    CALL("cuStreamSynchronize", wait_for_clock(); wait_until(stream_of(stream)->end_ns));
}
int cuStreamQuery(void *stream) {
    return fake_now_ns() < stream_of(stream)->end_ns ? NOT_READY : SUCCESS;
}
int cuCtxSynchronize(void) { CALL("cuCtxSynchronize", wait_until(last_end_ns)); }
static void stream_waits(stream_t *stream, const event_t *event) {
    if (event->ns > stream->end_ns) stream->end_ns = event->ns;
}
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    CALL("cuStreamWaitEvent", stream_waits(stream_of(stream), event));
}

int cuEventCreate(void **event, unsigned flags) {
    *event = new_object(sizeof(event_t));
    ((event_t *)*event)->flags = flags;
    return SUCCESS;
}
int cuEventDestroy_v2(void *event) { return destroy(event); }
static void record(event_t *event, const stream_t *stream) {
    int64_t now = fake_now_ns();
    event->ns = now > stream->end_ns ? now : stream->end_ns;
}
int cuEventRecord(void *event, void *stream) {
    CALL("cuEventRecord", record(event, stream_of(stream)));
}
int cuEventSynchronize(void *event) {
    CALL("cuEventSynchronize", wait_until(((event_t *)event)->ns));
}
int cuEventQuery(void *event) {
    return fake_now_ns() < ((event_t *)event)->ns ? NOT_READY : SUCCESS;
}
int cuEventElapsedTime(float *ms, void *begin, void *end) {
    const event_t *from = begin, *to = end;
    int64_t now = fake_now_ns();
    if (from->flags & WITHOUT_TIMING || to->flags & WITHOUT_TIMING || !from->ns || !to->ns)
        return 400;                                 /* invalid handle */
    if (now < from->ns || now < to->ns) return NOT_READY;
    *ms = (float)((double)(to->ns - from->ns) / 1e6);
    return SUCCESS;
}

int cuStreamBeginCapture_v2(void *stream, int mode) {
    stream_of(stream)->captured = new_object(sizeof(graph_t));
    return SUCCESS;
}
int cuStreamEndCapture(void *stream, void **graph) {
    *graph = stream_of(stream)->captured;
    stream_of(stream)->captured = NULL;
    return SUCCESS;
}
int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
    *executable = new_object(sizeof(graph_t));
    memcpy(*executable, graph, sizeof(graph_t));
    return SUCCESS;
}
int cuGraphUpload(void *executable, void *stream) { return SUCCESS; }
static void run_all(stream_t *stream, const graph_t *graph, uint32_t correlation) {
    for (int i = 0; i < graph->n; i++) run(stream, &graph->nodes[i], correlation);
}
int cuGraphLaunch(void *executable, void *stream) {
    CALL("cuGraphLaunch", run_all(stream_of(stream), executable, correlation));
}
int cuGraphExecDestroy(void *executable) { return destroy(executable); }
int cuGraphDestroy(void *graph) { return destroy(graph); }
