/* A stand-in for libcuda.so.1: streams, each with its own thread, memory that can run out, and two devices. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "standin.h"

enum { DEVICES = 2, CONTEXTS = 8 /* on a thread's stack */, QUEUE = 1024 /* launches that a stream queues before the next one blocks, as on a GPU */ };

static const uint64_t BYTES_PER_NS = 16;
static const uint64_t DEVICE_MEMORY = 80ULL << 30;

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static void sleep_until(uint64_t ns)
{
    struct timespec t = {ns / 1000000000ULL, ns % 1000000000ULL};
    while (now() < ns)
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* Streams */

struct CUstream_st {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t worker;
    int has_worker;
    uint64_t enqueued, completed; /* counts of work items */
    struct item { uint64_t launched, work; } items[QUEUE]; /* item i is at i % QUEUE */
    uint64_t finished;                                     /* when the latest item was done */
    struct CUstream_st *next;
};

/* The work of the device, if the variable STANDIN_KERNELS names a file: two times (ns) for each item, begin and end. */
static FILE *kernels;

/* Of the library that CUDA_INJECTION64_PATH names, which CUDA loads. Called by the threads of all streams. */
static void (*record)(uint64_t begin, uint64_t end);
static pthread_mutex_t record_lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void open_kernels(void)
{
    const char *path = getenv("STANDIN_KERNELS"), *injected = getenv("CUDA_INJECTION64_PATH");
    void *library = injected ? dlopen(injected, RTLD_NOW) : NULL;

    kernels = path ? fopen(path, "wb") : NULL;
    record = library ? dlsym(library, "standin_record") : NULL;
}

__attribute__((destructor)) static void close_kernels(void)
{
    if (kernels)
        fclose(kernels);
}

struct CUevent_st {
    CUstream stream;
    uint64_t position; /* the event is done when the stream has completed this many items */
};

static struct CUstream_st default_stream = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};
static struct CUstream_st *streams = &default_stream;
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;

/* The device of this rank has reached the collective. It begins when the devices of all ranks have. Returns that time. */
static uint64_t joined(const struct collective *collective, uint64_t begin)
{
    __atomic_store_n(&collective->arrivals[collective->rank], begin, __ATOMIC_RELEASE);
    for (int rank = 0; rank < collective->ranks; rank++) {
        uint64_t other;
        while (!(other = __atomic_load_n(&collective->arrivals[rank], __ATOMIC_ACQUIRE)))
            sleep_until(now() + 50000);
        begin = other > begin ? other : begin;
    }
    return begin;
}

static void *execute(void *argument)
{
    CUstream stream = argument;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (stream->completed == stream->enqueued)
            pthread_cond_wait(&stream->changed, &stream->lock);
        struct item item = stream->items[stream->completed % QUEUE];
        uint64_t begin = item.launched > stream->finished ? item.launched : stream->finished;
        pthread_mutex_unlock(&stream->lock);
        uint64_t finish = begin + item.work;
        if (item.work & COLLECTIVE) {
            const struct collective *collective = (void *)(item.work & ~COLLECTIVE);
            finish = joined(collective, begin) + collective->work;
        }
        sleep_until(finish);
        if (kernels)
            fwrite((uint64_t[]){begin, finish}, sizeof(uint64_t), 2, kernels);
        if (record) {
            pthread_mutex_lock(&record_lock);
            record(begin, finish);
            pthread_mutex_unlock(&record_lock);
        }
        pthread_mutex_lock(&stream->lock);
        stream->finished = finish;
        stream->completed++;
        pthread_cond_broadcast(&stream->changed);
    }
    return NULL;
}

static CUstream started(CUstream stream)
{
    stream = stream ? stream : &default_stream;
    pthread_mutex_lock(&stream->lock);
    if (!stream->has_worker)
        stream->has_worker = !pthread_create(&stream->worker, NULL, execute, stream);
    return stream;
}

static void enqueue(CUstream stream, uint64_t work)
{
    stream = started(stream);
    while (stream->enqueued - stream->completed == QUEUE) {
        pthread_mutex_unlock(&stream->lock);
        sched_yield(); /* NVIDIA's driver does not sleep either */
        pthread_mutex_lock(&stream->lock);
    }
    stream->items[stream->enqueued++ % QUEUE] = (struct item){now(), work};
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

static void wait_for(CUstream stream, uint64_t position)
{
    while (stream->completed < position)
        pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
}

static void drain(CUstream stream)
{
    stream = started(stream);
    wait_for(stream, stream->enqueued);
}

/* Threads do not survive fork(): a child begins with idle streams. */
static void forget_workers(void)
{
    pthread_mutex_init(&streams_lock, NULL);
    for (CUstream stream = streams; stream; stream = stream->next) {
        pthread_mutex_init(&stream->lock, NULL);
        pthread_cond_init(&stream->changed, NULL);
        stream->has_worker = 0;
        stream->completed = stream->enqueued;
        stream->finished = 0;
    }
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, forget_workers); }

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    *stream = calloc(1, sizeof **stream);
    pthread_mutex_init(&(*stream)->lock, NULL);
    pthread_cond_init(&(*stream)->changed, NULL);
    pthread_mutex_lock(&streams_lock);
    (*stream)->next = streams;
    streams = *stream;
    pthread_mutex_unlock(&streams_lock);
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    drain(stream);
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
    pthread_mutex_lock(&streams_lock);
    CUstream first = streams;
    pthread_mutex_unlock(&streams_lock);
    for (CUstream stream = first; stream; stream = stream->next)
        drain(stream);
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    *event = calloc(1, sizeof **event);
    (*event)->stream = &default_stream;
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    event->stream = started(stream);
    event->position = event->stream->enqueued;
    pthread_mutex_unlock(&event->stream->lock);
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event)
{
    CUstream stream = started(event->stream);
    int done = stream->completed >= event->position;
    pthread_mutex_unlock(&stream->lock);
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event)
{
    wait_for(started(event->stream), event->position);
    return CUDA_SUCCESS;
}

/* Devices */

struct CUctx_st { CUdevice device; };

static struct CUctx_st contexts[DEVICES] = {{0}, {1}};
static __thread CUcontext stack[CONTEXTS] = {&contexts[0]};
static __thread int top;

CUresult cuInit(unsigned flags) { return CUDA_SUCCESS; }

CUresult cuDeviceGetCount(int *count)
{
    *count = DEVICES;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    if (device < 0 || device >= DEVICES)
        return CUDA_ERROR_INVALID_DEVICE;
    *context = &contexts[device];
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    stack[top] = context;
    return CUDA_SUCCESS;
}

static CUresult push(CUcontext context)
{
    if (top + 1 == CONTEXTS)
        return CUDA_ERROR_INVALID_VALUE;
    stack[++top] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) { return push(context); }

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    if (!top)
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[top--];
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    if (device < 0 || device >= DEVICES)
        return CUDA_ERROR_INVALID_DEVICE;
    *context = calloc(1, sizeof **context);
    (*context)->device = device;
    return push(*context);
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = stack[top]->device;
    return CUDA_SUCCESS;
}

/* Work */

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;

/* The first launch of a function loads it, into new memory. */
static void load(size_t size)
{
    pthread_mutex_lock(&memory_lock);
    char *code = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(code, size, MADV_NOHUGEPAGE);
    memset(code, 1, size);
    munmap(code, size);
    pthread_mutex_unlock(&memory_lock);
}

static CUresult launch(CUfunction f, void **params, CUstream stream)
{
    if (!f)
        return CUDA_ERROR_INVALID_HANDLE;
    if ((size_t)f < SMALLEST_CODE)
        load((size_t)f);
    enqueue(stream, params && params[0] ? *(uint64_t *)params[0] : 0);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void **params, void **extra)
{
    return launch(f, params, stream);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
{
    return launch(f, params, config->hStream);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                   unsigned bz, unsigned shared, CUstream stream, void **params)
{
    return launch(f, params, stream);
}

CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream)
{
    if (!graph)
        return CUDA_ERROR_INVALID_HANDLE;
    enqueue(stream, *graph);
    return CUDA_SUCCESS;
}

static CUresult copy(size_t count, CUstream stream)
{
    enqueue(stream, count / BYTES_PER_NS);
    return CUDA_SUCCESS;
}

static CUresult copy_and_wait(size_t count)
{
    copy(count, NULL);
    drain(NULL);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t count) { return copy_and_wait(count); }
CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t count) { return copy_and_wait(count); }
CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t count) { return copy(count, NULL); }

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t count, CUstream stream)
{
    return copy(count, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t count, CUstream stream) { return copy(count, stream); }

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t count, CUstream stream)
{
    return copy(count, stream);
}

/* Memory. The address of a freed block is reused for the same size, as allocators do. */

struct block {
    CUdeviceptr address;
    size_t size;
    int live, device;
    struct block *next;
};

static struct block *blocks;
static CUdeviceptr next_address = 0x7f0000000000ULL;
static uint64_t used[DEVICES];

static struct block *block_of(size_t size)
{
    for (struct block *block = blocks; block; block = block->next)
        if (!block->live && block->size == size)
            return block;
    struct block *block = calloc(1, sizeof *block);
    block->address = next_address;
    block->size = size;
    block->next = blocks;
    next_address += (size + 511) & ~511ULL;
    return blocks = block;
}

static CUresult allocate_on(int device, CUdeviceptr *pointer, size_t size)
{
    CUresult result = size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory_lock);
    if (!result && used[device] + size > DEVICE_MEMORY)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!result) {
        struct block *block = block_of(size);
        block->live = 1;
        block->device = device;
        used[block->device] += size;
        *pointer = block->address;
    }
    pthread_mutex_unlock(&memory_lock);
    return result;
}

static CUresult allocate(CUdeviceptr *pointer, size_t size) { return allocate_on(stack[top]->device, pointer, size); }

static CUresult release(CUdeviceptr pointer)
{
    if (!pointer)
        return CUDA_SUCCESS;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&memory_lock);
    for (struct block *block = blocks; block && result; block = block->next)
        if (block->live && block->address == pointer) {
            block->live = 0;
            used[block->device] -= block->size;
            result = CUDA_SUCCESS;
        }
    pthread_mutex_unlock(&memory_lock);
    return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t size) { return allocate(pointer, size); }
CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    pthread_mutex_lock(&memory_lock); /* NVIDIA's driver also waits for the device, and holds a lock meanwhile */
    cuCtxSynchronize();
    pthread_mutex_unlock(&memory_lock);
    return release(pointer);
}
CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t size, CUstream stream) { return allocate(pointer, size); }
CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream) { return release(pointer); }
CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t size, unsigned flags) { return allocate(pointer, size); }

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties,
                     unsigned long long flags)
{
    return allocate_on(properties->location.id, handle, size);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) { return release(handle); }
