// The CUDA driver's functions without a GPU: memory is the host's, what is put on a stream is done
// at once, or kept while the stream is captured.  advance_step is the real one, run by one thread;
// `stamped_N` takes N pointers and does nothing but stamp: launch n of the run ends
// 1 + n % 61 microseconds after it began.
//
// stub_busy(1): a step is at work until the host waits for the whole device, and what its
// advance_step puts by cannot be read until then or until the next.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

struct ulonglong2 {
    unsigned long long x, y;
};
static const struct {
    unsigned x;
} threadIdx = {0}, blockDim = {1};
#define __global__
#define __syncthreads()
#include "advance_step.cu"

using u64 = unsigned long long;
using Work = std::function<void()>;

static bool busy, at_work, capturing;
static std::vector<Work> captured;
static ulonglong2 *unseen_at;
static std::vector<ulonglong2> unseen;

static u64 clock_ns()
{
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

static void show()
{
    std::copy(unseen.begin(), unseen.end(), unseen_at);
    unseen.clear();
}

static void advance(counter_record *counter, ulonglong2 *stamps, int n_slots)
{
    show();
    unseen_at = counter->row;
    advance_step(counter, stamps, n_slots);
    at_work = busy;
    if (!busy)
        return;
    unseen.assign(unseen_at, unseen_at + n_slots);
    std::memset(unseen_at, 0, n_slots * sizeof *unseen_at);
}

static void read_clock(volatile u64 *record)
{
    record[2] = clock_ns();
    record[3] = 1;
    record[1] = ~0ull >> 1; // answers every question
}

static Work launch_of(const std::string &name, void **params)
{
    if (name == "advance_step") {
        const auto counter = *(counter_record **)params[0];
        const auto stamps = *(ulonglong2 **)params[1];
        const int n_slots = *(int *)params[2];
        return [=] { advance(counter, stamps, n_slots); };
    }
    if (name == "clock_rounds") {
        const auto record = *(u64 **)params[0];
        return [=] { read_clock(record); };
    }
    const int n = std::atoi(name.c_str() + sizeof "stamped_" - 1); // then fault, stamp, slot
    u64 *const stamp = *(u64 **)params[n + 1];
    return [=] {
        static u64 n_run;
        stamp[0] = clock_ns();
        stamp[1] = stamp[0] + 1000 * (1 + n_run++ % 61);
    };
}

static int put(Work work)
{
    if (capturing)
        captured.push_back(std::move(work));
    else
        work();
    return 0;
}

static int copy(u64 to, u64 from, size_t nbytes)
{
    return put([=] { std::memcpy((void *)to, (const void *)from, nbytes); });
}

#define NOTHING(name) \
    int name() { return 0; }

extern "C" {
void stub_busy(int is) { busy = is; }

NOTHING(cuInit)
NOTHING(cuModuleUnload)
NOTHING(cuFuncSetAttribute)
NOTHING(cuFuncLoad)
NOTHING(cuStreamDestroy_v2)
NOTHING(cuStreamSynchronize)
NOTHING(cuStreamWaitEvent)
NOTHING(cuEventRecord)
NOTHING(cuEventSynchronize)
NOTHING(cuEventQuery)
NOTHING(cuEventElapsedTime)
NOTHING(cuEventDestroy_v2)
NOTHING(cuGraphUpload)
NOTHING(cuGraphDestroy)
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuGetErrorName(int, const char **text) { return *text = "CUDA_ERROR_STUB", 0; }
int cuGetErrorString(int, const char **text) { return *text = "a stub's error", 0; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int) { return *device = 0, 0; }
int cuDeviceGetName(char *name, int, int) { return std::strcpy(name, "stub"), 0; }
int cuDeviceGetAttribute(int *value, int, int) { return *value = 9, 0; }
int cuDeviceTotalMem_v2(size_t *nbytes, int) { return *nbytes = 1 << 30, 0; }
int cuCtxSynchronize()
{
    show();
    return at_work = false, 0;
}
int cuModuleLoadData(void **module, const void *) { return *module = &captured, 0; }
int cuModuleGetFunction(void **function, void *, const char *name)
{
    return *function = new std::string(name), 0;
}
int cuLaunchKernel(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   unsigned, void *, void **params, void **)
{
    return put(launch_of(*(std::string *)function, params));
}
int cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t n, void *) { return copy(to, (u64)from, n); }
int cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t n, void *) { return copy((u64)to, from, n); }
int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t n, void *) { return copy(to, from, n); }
int cuStreamCreate(void **stream, unsigned) { return *stream = &captured, 0; }
int cuStreamQuery(void *) { return at_work ? 600 : 0; }
int cuEventCreate(void **event, unsigned) { return *event = &captured, 0; }
int cuStreamBeginCapture_v2(void *, int) { return capturing = true, 0; }
int cuStreamEndCapture(void *, void **graph)
{
    capturing = false;
    *graph = new std::vector<Work>(std::move(captured));
    captured.clear();
    return 0;
}
int cuGraphInstantiateWithFlags(void **executable, void *graph, u64) { return *executable = graph, 0; }
int cuGraphLaunch(void *executable, void *)
{
    for (const Work &work : *(std::vector<Work> *)executable)
        work();
    return 0;
}
int cuGraphExecDestroy(void *executable) { return delete (std::vector<Work> *)executable, 0; }
}
