#define _GNU_SOURCE
/* A CUPTI without a GPU, whose records have the layout of CUDA 13's.
 *
 * FAKE_CUPTI in the environment makes it differ: version=N is what it calls itself, fail=N what
 * enabling returns, lose=N drops every Nth record of device work.
 */
#include "fake.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_PARAMETER = 1, MAX_LIMIT_REACHED = 12 };
enum { MEMCPY = 1, DRIVER = 4, KERNEL = 10, N_KINDS = 64, N_FUNCTIONS = 1024, MAX_WAITING = 1 << 16 };

typedef struct { uint32_t correlation; int is_copy; int64_t begin_ns, end_ns; } work_t;

static struct { const char *name; uint32_t id; } functions[] = {
    {"cuCtxSynchronize", 17}, {"cuEventRecord", 119}, {"cuEventSynchronize", 121},
    {"cuStreamSynchronize", 126}, {"cuMemcpyHtoDAsync_v2", 277}, {"cuMemcpyDtoHAsync_v2", 279},
    {"cuMemcpyDtoDAsync_v2", 281}, {"cuStreamWaitEvent", 295}, {"cuLaunchKernel", 307},
    {"cuGraphLaunch", 514},
};

static int kind_on[N_KINDS], function_on[N_FUNCTIONS];
static uint32_t last_correlation;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static work_t waiting[MAX_WAITING];                 /* until they have ended */
static int n_waiting, n_works;
static size_t n_dropped;
static uint8_t *buffer;
static size_t buffer_nbytes, used_nbytes;
static uint64_t (*now)(void);
static void (*request)(uint8_t **, size_t *, size_t *);
static void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t);

static int option(const char *name, int otherwise) {
    const char *text = getenv("FAKE_CUPTI"), *at = text ? strstr(text, name) : NULL;
    return at ? atoi(at + strlen(name)) : otherwise;
}

static size_t size_of(uint32_t kind) { return kind == KERNEL ? 216 : kind == MEMCPY ? 96 : 40; }

static void give_back(void) {
    if (!buffer) return;
    uint8_t *full = buffer;
    buffer = NULL;
    complete(NULL, 0, full, buffer_nbytes, used_nbytes);
}

static uint8_t *new_record(uint32_t kind) {
    size_t most;
    if (buffer && used_nbytes + size_of(kind) > buffer_nbytes) give_back();
    if (!buffer) {
        request(&buffer, &buffer_nbytes, &most);
        used_nbytes = 0;
    }
    if (!buffer) { n_dropped++; return NULL; }
    uint8_t *record = buffer + used_nbytes;
    memcpy(record, &kind, 4);
    used_nbytes += size_of(kind);
    return record;
}

static void put(uint8_t *record, size_t offset, const void *value, size_t nbytes) {
    memcpy(record + offset, value, nbytes);
}

uint32_t fake_call_begins(void) { return __sync_add_and_fetch(&last_correlation, 1); }

void fake_call_ends(uint32_t correlation, const char *function, int64_t begin_ns) {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(functions[i].name, function)) continue;
        if (!kind_on[DRIVER] && !function_on[functions[i].id]) return;
        uint64_t end = now();
        pthread_mutex_lock(&mutex);
        uint8_t *record = new_record(DRIVER);
        if (record) {
            uint32_t thread = (uint32_t)syscall(SYS_gettid);
            put(record, 4, &functions[i].id, 4);
            put(record, 8, &begin_ns, 8);
            put(record, 16, &end, 8);
            put(record, 28, &thread, 4);
            put(record, 32, &correlation, 4);
        }
        pthread_mutex_unlock(&mutex);
    }
}

void fake_work(uint32_t correlation, int is_copy, int64_t begin_ns, int64_t end_ns) {
    int every = option("lose=", 0);
    if (!kind_on[is_copy ? MEMCPY : KERNEL]) return;
    pthread_mutex_lock(&mutex);
    if ((every && ++n_works % every == 0) || n_waiting == MAX_WAITING) n_dropped++;
    else waiting[n_waiting++] = (work_t){correlation, is_copy, begin_ns, end_ns};
    pthread_mutex_unlock(&mutex);
}

static void write_work(const work_t *work, int is_known) {
    uint32_t kind = work->is_copy ? MEMCPY : KERNEL;
    uint8_t *record = new_record(kind);
    if (!record) return;
    if (is_known) {
        put(record, 16, &work->begin_ns, 8);
        put(record, 24, &work->end_ns, 8);
    }
    put(record, kind == KERNEL ? 92 : 44, &work->correlation, 4);
}

int cuptiGetVersion(uint32_t *version) {
    *version = (uint32_t)option("version=", 130001);
    return SUCCESS;
}
int cuptiGetResultString(int status, const char **text) {
    *text = status == 39 ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" : "CUPTI_ERROR_UNKNOWN";
    return SUCCESS;
}
int cuptiGetCallbackName(int domain, uint32_t id, const char **name) {
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (functions[i].id == id) { *name = functions[i].name; return SUCCESS; }
    return INVALID_PARAMETER;
}
int cuptiSetThreadIdType(int type) { return type == 1 ? SUCCESS : INVALID_PARAMETER; }
int cuptiActivitySetAttribute(int attribute, size_t *nbytes, void *value) { return SUCCESS; }
int cuptiActivityRegisterTimestampCallback(uint64_t (*clock)(void)) { now = clock; return SUCCESS; }
int cuptiActivityRegisterCallbacks(void (*requested)(uint8_t **, size_t *, size_t *),
                                   void (*completed)(void *, uint32_t, uint8_t *, size_t, size_t)) {
    request = requested;
    complete = completed;
    return SUCCESS;
}
int cuptiActivityEnable(int kind) {
    int status = option("fail=", SUCCESS);
    if (!status) kind_on[kind] = 1;
    return status;
}
int cuptiActivityDisable(int kind) { kind_on[kind] = 0; return SUCCESS; }
int cuptiActivityEnableDriverApi(uint32_t id, uint8_t enable) {
    function_on[id] = enable;
    return SUCCESS;
}
int cuptiActivityFlushAll(uint32_t forced) {
    static work_t late[MAX_WAITING];
    int kept = 0;
    pthread_mutex_lock(&mutex);
    for (int i = n_waiting - 1; i >= 0; i--) {      /* the newest first: order is not promised */
        int is_known = waiting[i].end_ns <= fake_now_ns();
        if (is_known || forced) write_work(&waiting[i], is_known);
        else late[kept++] = waiting[i];
    }
    for (int i = 0; i < kept; i++) waiting[i] = late[kept - 1 - i];
    n_waiting = kept;
    give_back();
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}
int cuptiActivityGetNextRecord(uint8_t *begin, size_t nbytes, uint8_t **record) {
    uint8_t *next = begin;
    if (*record) {
        uint32_t kind;
        memcpy(&kind, *record, 4);
        next = *record + size_of(kind);
    }
    if (next >= begin + nbytes) return MAX_LIMIT_REACHED;
    *record = next;
    return SUCCESS;
}
int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped) {
    *dropped = n_dropped;
    n_dropped = 0;
    return SUCCESS;
}
