/* A job that executes the commands on its standard input, and logs every call that it makes.
 *
 *     program LOG < script
 *
 * A line of the script is one of:
 *   load LIBRARY
 *   sleep ms=N
 *   read size=N times=N     one read and one pread each time, into new memory
 *   map size=N              maps a file of N bytes, and touches each of its pages
 *   open NAME               opens a scope of PyTorch
 *   close, abandon          the innermost scope: ends it, or drops it without ending it
 *   the name of a function of CUDA, NCCL or PyTorch, with its options:
 *
 *     cudaLaunchKernel work=20000 stream=1 times=100 threads=8
 *     cudaMalloc size=4096 times=3
 *     cudaFree times=3
 *
 * `AsyncWork::AsyncWork count=N ranks=M` issues the collective N of a group of gloo with M ranks.
 * `ProcessGroup::getBackend rank=N ranks=M` asks the rank N of M for a backend; with kind=0, as PyTorch up to 2.2 lays it out.
 * `spin work=N` computes for N ns of CPU time. `set_grad_enabled count=0` switches gradients off.
 * `THPEngine_run_backward count=N size=M work=W` calls N operators on a thread of autograd, M on the calling thread, and switches
 * gradients off, as backward does. With work, the thread of autograd then launches N kernels. Without count, it calls nothing.
 * `Function.apply count=N` draws random numbers and calls N operators in the forward function of a custom function. With null=1, it
 * also switches gradients off before them, and ends its region before the last one. Without count, it calls nothing.
 *
 * Options: times (in each thread), threads, forks (children that run the line one after another, without exec),
 * work (ns on the device), stream, event, comm, context (any numbers; stream 0 is the default stream), size, kind,
 * device, count, type, ranks, rank, null=1 (a null kernel, graph or communicator: the call fails), nonblocking=1 (of
 * ncclCommInitRankConfig: calls of the communicator return ncclInProgress).
 * Every kind of allocation has its own stack, from which its free removes the latest. With an empty stack, free gets
 * an address that was never allocated.
 *
 * After each line the program prints `done`. LOG is a shared mapping, so it has all calls that began before a SIGKILL.
 * `struct record` describes a call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "standin.h"

struct record {
    uint64_t start, end; /* CLOCK_MONOTONIC, ns, just around the call; end is 0 while the call runs */
    uint64_t size;       /* bytes copied, allocated or freed; elements x element size of a collective */
    uint64_t pointer;    /* address that was allocated or freed, or the communicator */
    uint32_t pid, tid;
    int32_t result;
    int32_t device; /* that cudaSetDevice last selected in this thread */
    char name[32];
};

struct options {
    long times, threads, forks, work, stream, event, comm, context, size, kind, device, count, type, ranks, rank, null,
        nonblocking;
};

typedef void function(const struct options *, struct record *);

static struct record *records; /* the first one's `start` counts the others */
static uint64_t capacity;
static __thread int device;

static void fail(const char *what, const char *which)
{
    printf("error: %s %s\n", what, which);
    exit(1);
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static void open_log(const char *path)
{
    struct stat status;
    int fd = open(path, O_RDWR);
    if (fd < 0 || fstat(fd, &status))
        fail("cannot open the log", path);
    records = mmap(NULL, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (records == MAP_FAILED)
        fail("cannot map the log", path);
    capacity = status.st_size / sizeof *records;
    close(fd);
}

static struct record *next_record(const char *name)
{
    uint64_t index = __atomic_add_fetch(&records[0].start, 1, __ATOMIC_SEQ_CST);
    if (index >= capacity)
        fail("the log is full at", name);
    struct record *record = &records[index];
    record->pid = getpid();
    record->tid = gettid();
    record->device = device;
    strncpy(record->name, name, sizeof record->name - 1);
    return record;
}

static void *symbol(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    if (!found)
        fail("no loaded library has", name);
    return found;
}

#define API(name)                    \
    ({                               \
        static __typeof__(&name) f;  \
        if (!f)                      \
            f = symbol(#name);       \
        f;                           \
    })

#define CALL(record, name, ...)                  \
    do {                                         \
        __typeof__(&name) f = API(name);         \
        (record)->start = now();                 \
        (record)->result = f(__VA_ARGS__);       \
        (record)->end = now();                   \
    } while (0)

/* Numbered objects, created at their first use */

enum { NUMBERS = 64 };

static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static CUstream streams[NUMBERS];
static CUevent events[NUMBERS];
static ncclComm_t comms[NUMBERS];

static CUstream stream(const struct options *o)
{
    pthread_mutex_lock(&making);
    CUstream *made = &streams[o->stream % NUMBERS];
    if (!*made && made != streams) {
        if (dlsym(RTLD_DEFAULT, "cudaStreamCreate"))
            API(cudaStreamCreate)(made);
        else
            API(cuStreamCreate)(made, 0);
    }
    pthread_mutex_unlock(&making);
    return *made;
}

static CUevent event(const struct options *o)
{
    pthread_mutex_lock(&making);
    CUevent *made = &events[o->event % NUMBERS];
    if (!*made)
        API(cudaEventCreate)(made);
    pthread_mutex_unlock(&making);
    return *made;
}

/* Launches */

static void *kernel(const struct options *o) { return o->null ? NULL : (void *)kernel; }

#define WORK(o)                   \
    uint64_t work = (o)->work;    \
    void *args[] = {&work}

static const dim3 one = {1, 1, 1};

static void launch_kernel(const struct options *o, struct record *r)
{
    WORK(o);
    CUstream on = stream(o);
    CALL(r, cudaLaunchKernel, kernel(o), one, one, args, 0, on);
}

static void launch_kernel_ptsz(const struct options *o, struct record *r)
{
    WORK(o);
    CUstream on = stream(o);
    CALL(r, cudaLaunchKernel_ptsz, kernel(o), one, one, args, 0, on);
}

static void launch_cooperative_kernel(const struct options *o, struct record *r)
{
    WORK(o);
    CUstream on = stream(o);
    CALL(r, cudaLaunchCooperativeKernel, kernel(o), one, one, args, 0, on);
}

static void launch_kernel_ex(const struct options *o, struct record *r)
{
    WORK(o);
    cudaLaunchConfig_t config = {one, one, 0, stream(o)};
    CALL(r, cudaLaunchKernelExC, &config, kernel(o), args);
}

static void launch_graph(const struct options *o, struct record *r)
{
    WORK(o);
    (void)args;
    CUstream on = stream(o);
    CALL(r, cudaGraphLaunch, o->null ? NULL : &work, on);
}

static void driver_launch_kernel(const struct options *o, struct record *r)
{
    WORK(o);
    CUstream on = stream(o);
    CALL(r, cuLaunchKernel, kernel(o), 1, 1, 1, 1, 1, 1, 0, on, args, NULL);
}

static void driver_launch_kernel_ex(const struct options *o, struct record *r)
{
    WORK(o);
    CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, stream(o)};
    CALL(r, cuLaunchKernelEx, &config, kernel(o), args, NULL);
}

static void driver_launch_graph(const struct options *o, struct record *r)
{
    WORK(o);
    (void)args;
    CUstream on = stream(o);
    CALL(r, cuGraphLaunch, o->null ? NULL : &work, on);
}

/* Waits, events, devices */

static void stream_synchronize(const struct options *o, struct record *r)
{
    CUstream on = stream(o);
    CALL(r, cudaStreamSynchronize, on);
}

static void driver_stream_synchronize(const struct options *o, struct record *r)
{
    CUstream on = stream(o);
    CALL(r, cuStreamSynchronize, on);
}

static void device_synchronize(const struct options *o, struct record *r) { CALL(r, cudaDeviceSynchronize); }
static void context_synchronize(const struct options *o, struct record *r) { CALL(r, cuCtxSynchronize); }

static void event_record(const struct options *o, struct record *r)
{
    CUevent of = event(o);
    CUstream on = stream(o);
    CALL(r, cudaEventRecord, of, on);
}

static void event_query(const struct options *o, struct record *r)
{
    CUevent of = event(o);
    CALL(r, cudaEventQuery, of);
}

static void event_synchronize(const struct options *o, struct record *r)
{
    CUevent of = event(o);
    CALL(r, cudaEventSynchronize, of);
}

static void set_device(const struct options *o, struct record *r)
{
    CALL(r, cudaSetDevice, o->device);
    if (!r->result)
        r->device = device = o->device;
}

/* Contexts are numbered too. */

static CUcontext contexts[NUMBERS];

static void retain_context(const struct options *o, struct record *r)
{
    CALL(r, cuDevicePrimaryCtxRetain, &contexts[o->context % NUMBERS], o->device);
}

static void create_context(const struct options *o, struct record *r)
{
    CALL(r, cuCtxCreate_v2, &contexts[o->context % NUMBERS], 0, o->device);
}

static void set_context(const struct options *o, struct record *r)
{
    CALL(r, cuCtxSetCurrent, contexts[o->context % NUMBERS]);
}

static void push_context(const struct options *o, struct record *r)
{
    CALL(r, cuCtxPushCurrent_v2, contexts[o->context % NUMBERS]);
}

static void pop_context(const struct options *o, struct record *r)
{
    CUcontext context;
    CALL(r, cuCtxPopCurrent_v2, &context);
}

/* Copies */

static void copy(const struct options *o, struct record *r)
{
    r->size = o->size;
    CALL(r, cudaMemcpy, NULL, NULL, o->size, o->kind);
}

static void copy_async(const struct options *o, struct record *r)
{
    r->size = o->size;
    CUstream on = stream(o);
    CALL(r, cudaMemcpyAsync, NULL, NULL, o->size, o->kind, on);
}

static void driver_copy_to_device(const struct options *o, struct record *r)
{
    r->size = o->size;
    CUstream on = stream(o);
    CALL(r, cuMemcpyHtoDAsync_v2, 0, NULL, o->size, on);
}

/* Memory */

struct allocation {
    uint64_t pointer, size;
    struct allocation *below;
};

enum heap { RUNTIME, RUNTIME_ASYNC, DRIVER, DRIVER_ASYNC, PHYSICAL, HEAPS };

static struct allocation *heaps[HEAPS];
static pthread_mutex_t heaps_lock = PTHREAD_MUTEX_INITIALIZER;

static void push(enum heap heap, uint64_t pointer, struct record *r)
{
    if (r->result)
        return;
    struct allocation *top = malloc(sizeof *top);
    r->pointer = pointer;
    pthread_mutex_lock(&heaps_lock);
    *top = (struct allocation){pointer, r->size, heaps[heap]};
    heaps[heap] = top;
    pthread_mutex_unlock(&heaps_lock);
}

static uint64_t pop(enum heap heap, struct record *r)
{
    pthread_mutex_lock(&heaps_lock);
    struct allocation *top = heaps[heap];
    if (top)
        heaps[heap] = top->below;
    pthread_mutex_unlock(&heaps_lock);
    r->pointer = top ? top->pointer : 0xbad;
    r->size = top ? top->size : 0;
    free(top);
    return r->pointer;
}

#define ALLOCATE(handler, name, heap, type, ...)                      \
    static void handler(const struct options *o, struct record *r)    \
    {                                                                 \
        type pointer = 0;                                             \
        r->size = o->size;                                            \
        CALL(r, name, &pointer, o->size, ##__VA_ARGS__);              \
        push(heap, (uint64_t)pointer, r);                             \
    }

#define FREE(handler, name, heap, type, ...)                          \
    static void handler(const struct options *o, struct record *r)    \
    {                                                                 \
        type pointer = (type)pop(heap, r);                            \
        CALL(r, name, pointer, ##__VA_ARGS__);                        \
    }

ALLOCATE(allocate, cudaMalloc, RUNTIME, void *)
ALLOCATE(allocate_managed, cudaMallocManaged, RUNTIME, void *, 1)
ALLOCATE(allocate_async, cudaMallocAsync, RUNTIME_ASYNC, void *, streams[o->stream])
ALLOCATE(driver_allocate, cuMemAlloc_v2, DRIVER, CUdeviceptr)
ALLOCATE(driver_allocate_async, cuMemAllocAsync, DRIVER_ASYNC, CUdeviceptr, streams[o->stream])
#define ON_DEVICE(o) &(CUmemAllocationProp){.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, (o)->device}}
ALLOCATE(create_physical, cuMemCreate, PHYSICAL, CUmemGenericAllocationHandle, ON_DEVICE(o), 0)
FREE(release, cudaFree, RUNTIME, void *)
FREE(release_async, cudaFreeAsync, RUNTIME_ASYNC, void *, streams[o->stream])
FREE(driver_release, cuMemFree_v2, DRIVER, CUdeviceptr)
FREE(driver_release_async, cuMemFreeAsync, DRIVER_ASYNC, CUdeviceptr, streams[o->stream])
FREE(release_physical, cuMemRelease, PHYSICAL, CUmemGenericAllocationHandle)

/* NCCL */

static ncclComm_t communicator(const struct options *o, struct record *r)
{
    static const uint8_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    ncclComm_t comm = o->null ? NULL : comms[o->comm % NUMBERS];
    r->pointer = (uint64_t)comm;
    r->size = o->count * sizes[o->type % sizeof sizes];
    return comm;
}

static void init_rank(const struct options *o, struct record *r)
{
    ncclUniqueId id;
    API(ncclGetUniqueId)(&id);
    CALL(r, ncclCommInitRank, &comms[o->comm % NUMBERS], o->ranks, id, o->rank);
    r->pointer = (uint64_t)comms[o->comm % NUMBERS];
}

static void init_rank_config(const struct options *o, struct record *r)
{
    ncclUniqueId id;
    API(ncclGetUniqueId)(&id);
    ncclConfig_t config = {sizeof config, 0, 0, !o->nonblocking};
    CALL(r, ncclCommInitRankConfig, &comms[o->comm % NUMBERS], o->ranks, id, o->rank, &config);
    r->pointer = (uint64_t)comms[o->comm % NUMBERS];
}

static void init_rank_scalable(const struct options *o, struct record *r)
{
    ncclUniqueId ids[2];
    API(ncclGetUniqueId)(&ids[0]);
    API(ncclGetUniqueId)(&ids[1]);
    CALL(r, ncclCommInitRankScalable, &comms[o->comm % NUMBERS], o->ranks, o->rank, 2, ids, NULL);
    r->pointer = (uint64_t)comms[o->comm % NUMBERS];
}

/* Splits communicator `comm`. The new communicator has the next number. */
static void split(const struct options *o, struct record *r)
{
    ncclComm_t *made = &comms[(o->comm + 1) % NUMBERS];
    CALL(r, ncclCommSplit, communicator(o, r), 0, o->rank, made, NULL);
    r->pointer = (uint64_t)*made;
}

/* Communicators `comm`, `comm` + 1, ... for `ranks` devices. */
static void init_all(const struct options *o, struct record *r)
{
    CALL(r, ncclCommInitAll, &comms[o->comm % NUMBERS], o->ranks, NULL);
    r->pointer = (uint64_t)comms[o->comm % NUMBERS];
}

static void ask_count(const struct options *o, struct record *r)
{
    int count;
    CALL(r, ncclCommCount, communicator(o, r), &count);
}

static void ask_rank(const struct options *o, struct record *r)
{
    int rank;
    CALL(r, ncclCommUserRank, communicator(o, r), &rank);
}

static void destroy(const struct options *o, struct record *r) { CALL(r, ncclCommDestroy, communicator(o, r)); }
static void abort_communicator(const struct options *o, struct record *r) { CALL(r, ncclCommAbort, communicator(o, r)); }
static void group_start(const struct options *o, struct record *r) { CALL(r, ncclGroupStart); }
static void group_end(const struct options *o, struct record *r) { CALL(r, ncclGroupEnd); }

#define COLLECTIVE(handler, name, ...)                                \
    static void handler(const struct options *o, struct record *r)    \
    {                                                                 \
        ncclComm_t comm = communicator(o, r);                         \
        CUstream on = stream(o);                                      \
        CALL(r, name, __VA_ARGS__, comm, on);                         \
    }

COLLECTIVE(all_reduce, ncclAllReduce, NULL, NULL, o->count, o->type, 0)
COLLECTIVE(reduce_scatter, ncclReduceScatter, NULL, NULL, o->count, o->type, 0)
COLLECTIVE(all_gather, ncclAllGather, NULL, NULL, o->count, o->type)
COLLECTIVE(broadcast, ncclBroadcast, NULL, NULL, o->count, o->type, 0)
COLLECTIVE(reduce, ncclReduce, NULL, NULL, o->count, o->type, 0, 0)
COLLECTIVE(send_to, ncclSend, NULL, o->count, o->type, 0)
COLLECTIVE(receive_from, ncclRecv, NULL, o->count, o->type, 0)

/* PyTorch */

#define MANGLED(name, type)              \
    ({                                   \
        static __typeof__(type) f;       \
        if (!f)                          \
            f = (__typeof__(f))symbol(name); \
        f;                               \
    })

#define PYTORCH(handler, name)                                        \
    static void handler(const struct options *o, struct record *r)    \
    {                                                                 \
        int (*f)(void *) = MANGLED(name, int (*)(void *));            \
        r->start = now();                                             \
        r->result = f(NULL);                                          \
        r->end = now();                                               \
    }

PYTORCH(end_scope, "_ZN2at14RecordFunction3endEv")
PYTORCH(make_work, "_ZN4c10d4WorkC2EiNS_6OpTypeEPKcRKSt8optionalISt6vectorIN2at6TensorESaIS7_EEE")

/* A collective with a number, in a group of gloo: its context has its rank and its size after a pointer. */
static void make_numbered_work(const struct options *o, struct record *r)
{
    struct { void *functions; int rank, size; } group = {NULL, o->rank, o->ranks};
    void *context = &group;
    int (*f)(void *, void **, void *, unsigned char, uint64_t) = MANGLED(
        "_ZN4c10d16ProcessGroupGloo9AsyncWorkC2ESt10shared_ptrIN4gloo7ContextEESt6vectorIS6_IN2at6TensorESaIS8_EESaISA_"
        "EENS_6OpTypeEmNSt6chrono8durationIlSt5ratioILl1ELl1000EEEEPKcRKSt8optionalISA_E",
        int (*)(void *, void **, void *, unsigned char, uint64_t));
    r->start = now();
    r->result = f(NULL, &context, NULL, 0, o->count);
    r->end = now();
}

/* A process group has its rank and its size after a pointer, two counters and a pointer to its store. */
static void get_backend(const struct options *o, struct record *r)
{
    struct { void *functions; uint32_t counters[2]; void *store; int rank, size; } group = {NULL, {1, 1}, &group, o->rank, o->ranks};
    struct { void *functions; uint64_t counters[2]; void *store; int rank, size; } old = {NULL, {1, 1}, &old, o->rank, o->ranks};
    struct scope_object (*f)(void *, unsigned char) = MANGLED(
        "_ZN4c10d12ProcessGroup10getBackendEN3c1010DeviceTypeE", struct scope_object (*)(void *, unsigned char));
    r->start = now();
    r->result = f(o->kind ? (void *)&group : (void *)&old, 0).object == NULL;
    r->end = now();
}

PYTORCH(finish_work, "_ZN4c10d4Work6finishENSt15__exception_ptr13exception_ptrE")
PYTORCH(wait_for_work, "_ZN4c10d4Work4waitENSt6chrono8durationIlSt5ratioILl1ELl1000EEEE")
PYTORCH(finalize_backward, "_ZN4c10d7Reducer17finalize_backwardEv")

typedef struct scope_object enter_function(const struct string *, const void *);

static enter_function *enter(void)
{
    return MANGLED("_ZN5torch8autograd8profiler25record_function_enter_newERKNSt7__cxx1112basic_stringIc"
                   "St11char_traitsIcESaIcEEERKSt8optionalIS7_E", enter_function *);
}

static void enter_scope(const struct options *o, struct record *r)
{
    struct string name = {"my scope", 8};
    enter_function *f = enter();
    r->start = now();
    f(&name, NULL);
    r->end = now();
}

/* The scopes of `open`, innermost last. The stand-in returns the object that it gets as arguments. */
#define RECORD_FUNCTION_OFFSET 16 /* of the object that ends, in the returned object */

static char *open_scopes[64];
static size_t scope_count;

static void open_scope(const char *text)
{
    struct string name = {text, strlen(text)};
    if (scope_count == sizeof open_scopes / sizeof *open_scopes)
        fail("too many scopes at", text);
    open_scopes[scope_count] = malloc(64);
    enter()(&name, open_scopes[scope_count++]);
}

static void close_scope(void)
{
    int (*end)(void *) = MANGLED("_ZN2at14RecordFunction3endEv", int (*)(void *));
    if (!scope_count)
        fail("no scope is open at", "close");
    end(open_scopes[--scope_count] + RECORD_FUNCTION_OFFSET);
}

PYTORCH(addmm, "_ZN2at4_ops5addmm4callERKNS_6TensorES4_S4_RKN3c106ScalarES8_")
PYTORCH(cross_entropy_loss,
        "_ZN2at4_ops18cross_entropy_loss4callERKNS_6TensorES4_RKSt8optionalIS2_ElN3c106SymIntEd")
PYTORCH(mean, "_ZN2at4_ops4mean4callERKNS_6TensorESt8optionalIN3c1010ScalarTypeEE")
PYTORCH(multinomial, "_ZN2at4_ops11multinomial4callERKNS_6TensorElbSt8optionalINS_9GeneratorEE")
PYTORCH(normal, "_ZN2at4_ops7normal_4callERNS_6TensorEddSt8optionalINS_9GeneratorEE")
PYTORCH(draw, "_ZN2at4_ops7random_4callERNS_6TensorESt8optionalINS_9GeneratorEE")
PYTORCH(gloo_send, "_ZN4c10d16ProcessGroupGloo4sendERSt6vectorIN2at6TensorESaIS3_EEii")
PYTORCH(enter_autocast, "_ZN2at8autocast17increment_nestingEv")
PYTORCH(scale, "_ZN2at4_ops11mul__Tensor4callERNS_6TensorERKS2_")
PYTORCH(foreach_add, "_ZN2at4_ops18_foreach_add__List4callEN3c108ArrayRefINS_6TensorEEES5_RKNS2_6ScalarE")

static change_mode *grad_mode(void) { return MANGLED("_ZN3c108GradMode11set_enabledEb", change_mode *); }

static void set_grad_enabled(const struct options *o, struct record *r)
{
    change_mode *f = grad_mode();
    r->start = now();
    f(o->count);
    r->end = now();
}

static void enter_inference_mode(const struct options *o, struct record *r) { CALL(r, inference_mode, 1); }
static void exit_inference_mode(const struct options *o, struct record *r) { CALL(r, inference_mode, 0); }

static long cpu_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void spin(const struct options *o, struct record *r)
{
    r->start = now();
    for (long end = cpu_time() + o->work; cpu_time() < end;)
        ;
    r->end = now();
}

/* In backward, `count` operators are called by a thread of autograd, and `size` by the calling thread. */
static const struct options *of_backward;

static void *call_operators(void *count)
{
    struct record unused;
    for (long i = 0; i < (long)count; i++)
        addmm(NULL, &unused);
    return NULL;
}

static void *compute_on_own_thread(void *unused)
{
    call_operators((void *)of_backward->count);
    for (long i = 0; of_backward->work && i < of_backward->count; i++)
        launch_kernel(of_backward, next_record("cudaLaunchKernel"));
    return NULL;
}

static void compute_gradients(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, compute_on_own_thread, NULL))
        fail("cannot start", "a thread of autograd");
    pthread_join(thread, NULL);
    call_operators((void *)of_backward->size);
    grad_mode()(0);
}

static void run_backward(const struct options *o, struct record *r)
{
    of_backward = o;
    if (o->count)
        *(void (**)(void))symbol("during_backward") = compute_gradients;
    CALL(r, backward);
}

static const struct options *of_function;

static void compute_forward(void)
{
    struct record unused;
    draw(NULL, &unused);
    if (of_function->null) {
        grad_mode()(0);
        call_operators((void *)(of_function->count - 1));
        grad_mode()(0); /* as before */
    }
    call_operators((void *)(of_function->null ? 1 : of_function->count));
}

static void apply_function(const struct options *o, struct record *r)
{
    of_function = o;
    CALL(r, apply, o->count ? grad_mode() : NULL, o->count ? compute_forward : NULL);
}

/* The script */

static const struct { const char *name; function *call; } functions[] = {
    {"cudaLaunchKernel", launch_kernel},
    {"cudaLaunchKernel_ptsz", launch_kernel_ptsz},
    {"cudaLaunchCooperativeKernel", launch_cooperative_kernel},
    {"cudaLaunchKernelExC", launch_kernel_ex},
    {"cudaGraphLaunch", launch_graph},
    {"cuLaunchKernel", driver_launch_kernel},
    {"cuLaunchKernelEx", driver_launch_kernel_ex},
    {"cuGraphLaunch", driver_launch_graph},
    {"cudaStreamSynchronize", stream_synchronize},
    {"cudaDeviceSynchronize", device_synchronize},
    {"cuStreamSynchronize", driver_stream_synchronize},
    {"cuCtxSynchronize", context_synchronize},
    {"cudaEventRecord", event_record},
    {"cudaEventQuery", event_query},
    {"cudaEventSynchronize", event_synchronize},
    {"cudaSetDevice", set_device},
    {"cuDevicePrimaryCtxRetain", retain_context},
    {"cuCtxCreate_v2", create_context},
    {"cuCtxSetCurrent", set_context},
    {"cuCtxPushCurrent_v2", push_context},
    {"cuCtxPopCurrent_v2", pop_context},
    {"cudaMemcpy", copy},
    {"cudaMemcpyAsync", copy_async},
    {"cuMemcpyHtoDAsync_v2", driver_copy_to_device},
    {"cudaMalloc", allocate},
    {"cudaMallocManaged", allocate_managed},
    {"cudaMallocAsync", allocate_async},
    {"cuMemAlloc_v2", driver_allocate},
    {"cuMemAllocAsync", driver_allocate_async},
    {"cuMemCreate", create_physical},
    {"cudaFree", release},
    {"cudaFreeAsync", release_async},
    {"cuMemFree_v2", driver_release},
    {"cuMemFreeAsync", driver_release_async},
    {"cuMemRelease", release_physical},
    {"ncclCommInitRank", init_rank},
    {"ncclCommInitRankConfig", init_rank_config},
    {"ncclCommInitRankScalable", init_rank_scalable},
    {"ncclCommInitAll", init_all},
    {"ncclCommSplit", split},
    {"ncclCommCount", ask_count},
    {"ncclCommUserRank", ask_rank},
    {"ncclCommDestroy", destroy},
    {"ncclCommAbort", abort_communicator},
    {"ncclGroupStart", group_start},
    {"ncclGroupEnd", group_end},
    {"ncclAllReduce", all_reduce},
    {"ncclReduceScatter", reduce_scatter},
    {"ncclAllGather", all_gather},
    {"ncclBroadcast", broadcast},
    {"ncclReduce", reduce},
    {"ncclSend", send_to},
    {"ncclRecv", receive_from},
    {"record_function_enter_new", enter_scope},
    {"RecordFunction::end", end_scope},
    {"Work::Work", make_work},
    {"AsyncWork::AsyncWork", make_numbered_work},
    {"ProcessGroup::getBackend", get_backend},
    {"Work::wait", wait_for_work},
    {"Work::finish", finish_work},
    {"Reducer::finalize_backward", finalize_backward},
    {"THPEngine_run_backward", run_backward},
    {"addmm", addmm},
    {"cross_entropy_loss", cross_entropy_loss},
    {"mean", mean},
    {"multinomial", multinomial},
    {"normal_", normal},
    {"random_", draw},
    {"ProcessGroupGloo::send", gloo_send},
    {"autocast.__enter__", enter_autocast},
    {"mul_", scale},
    {"_foreach_add_", foreach_add},
    {"set_grad_enabled", set_grad_enabled},
    {"Function.apply", apply_function},
    {"inference_mode.__enter__", enter_inference_mode},
    {"inference_mode.__exit__", exit_inference_mode},
    {"spin", spin},
};

static struct options parse(char *words)
{
    struct options o = {.times = 1, .threads = 1, .ranks = 1, .size = 1, .kind = cudaMemcpyHostToDevice, .type = 7};
    const struct { const char *key; long *value; } keys[] = {
        {"times", &o.times}, {"threads", &o.threads}, {"forks", &o.forks}, {"work", &o.work},   {"stream", &o.stream},
        {"event", &o.event}, {"comm", &o.comm},       {"size", &o.size},   {"kind", &o.kind},   {"device", &o.device},
        {"count", &o.count}, {"type", &o.type},       {"ranks", &o.ranks}, {"rank", &o.rank},   {"null", &o.null},
        {"ms", &o.times},    {"context", &o.context}, {"nonblocking", &o.nonblocking},
    };
    for (char *word; (word = strsep(&words, " "));) {
        char *key = strsep(&word, "=");
        size_t i = 0;
        while (i < sizeof keys / sizeof *keys && strcmp(keys[i].key, key))
            i++;
        if (!word || i == sizeof keys / sizeof *keys)
            fail("not an option:", key);
        *keys[i].value = strtol(word, NULL, 0);
    }
    return o;
}

struct job { const char *name; function *call; struct options options; };

static void *repeat(void *argument)
{
    struct job *job = argument;
    for (long i = 0; i < job->options.times; i++)
        job->call(&job->options, next_record(job->name));
    return NULL;
}

static void in_threads(struct job *job)
{
    if (job->options.threads == 1) {
        repeat(job);
        return;
    }
    pthread_t threads[job->options.threads];
    for (long i = 0; i < job->options.threads; i++)
        pthread_create(&threads[i], NULL, repeat, job);
    for (long i = 0; i < job->options.threads; i++)
        pthread_join(threads[i], NULL);
}

static void in_children(struct job *job)
{
    for (long i = 0; i < job->options.forks; i++) {
        pid_t child = fork();
        if (child == 0) {
            in_threads(job);
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
}

/* Into new memory of small pages: a huge page would be a single page fault. */
static void read_zeros(const struct options *o)
{
    char *bytes = mmap(NULL, o->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(bytes, o->size, MADV_NOHUGEPAGE);
    int fd = open("/dev/zero", O_RDONLY);
    for (long i = 0; i < o->times; i++)
        if (pread(fd, bytes, o->size, 0) != o->size || read(fd, bytes, o->size) != o->size)
            fail("cannot read", "/dev/zero");
    close(fd);
    munmap(bytes, o->size);
}

static void touch_file(const struct options *o)
{
    const char *folder = getenv("TMPDIR"); /* tmpfile() does not read it, and /tmp may be read-only */
    int file = open(folder ? folder : "/tmp", O_TMPFILE | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, o->size))
        fail("cannot make", "a file");
    const volatile char *bytes = mmap(NULL, o->size, PROT_READ, MAP_PRIVATE, file, 0);
    if (bytes == MAP_FAILED)
        fail("cannot map", "a file");
    for (long i = 0; i < o->size; i += 4096)
        (void)bytes[i];
    close(file); /* the mapping remains: to remove it would change the counters of pages again */
}

static void run(const char *name, char *words)
{
    if (!strcmp(name, "load")) {
        if (!words || !dlopen(words, RTLD_NOW | RTLD_GLOBAL))
            fail("cannot load", words ? dlerror() : "nothing");
        return;
    }
    if (!strcmp(name, "open")) {
        open_scope(words);
        return;
    }
    if (!strcmp(name, "close") || !strcmp(name, "abandon")) {
        if (!strcmp(name, "close"))
            close_scope();
        else if (scope_count)
            scope_count--;
        return;
    }
    struct job job = {name, NULL, parse(words)};
    if (!strcmp(name, "sleep")) {
        usleep(job.options.times * 1000);
        return;
    }
    if (!strcmp(name, "read")) {
        read_zeros(&job.options);
        return;
    }
    if (!strcmp(name, "map")) {
        touch_file(&job.options);
        return;
    }
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (!strcmp(functions[i].name, name))
            job.call = functions[i].call;
    if (!job.call)
        fail("no such command:", name);
    if (job.options.forks)
        in_children(&job);
    else
        in_threads(&job);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        fail("usage:", "program LOG < script");
    setvbuf(stdout, NULL, _IOLBF, 0);
    open_log(argv[1]);
    for (char line[256]; fgets(line, sizeof line, stdin);) {
        char *words = line;
        line[strcspn(line, "\n")] = 0;
        char *name = strsep(&words, " ");
        if (*name) {
            run(name, words);
            puts("done");
        }
    }
    return 0;
}
