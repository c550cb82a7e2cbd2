/* A stand-in for libnccl.so.2. Like the real one, it is linked with a private copy of the runtime, and exports every call
 * as ncclX and pncclX at the same address. A communicator needs no peers: its calls never wait for one. But if the variable
 * STANDIN_PEERS names a file, its processes are the ranks, and a collective on the device waits for the other devices. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "standin.h"

struct ncclComm { int ranks, rank, in_progress; uint64_t *arrivals, sequence; };

enum { LATENCY_NS = 5000, COLLECTIVES = 1 << 16 /* of a communicator that its peers wait for */ };

#define EXPORT_TWICE(name) __typeof__(name) p##name __attribute__((alias(#name)))

/* Work collected between ncclGroupStart and ncclGroupEnd: one kernel for the whole group, as in NCCL. */
static __thread struct {
    int depth, calls;
    ncclResult_t result; /* of the group's calls: ncclGroupEnd returns it, and launches nothing if a call has failed */
    uint64_t work;
    cudaStream_t stream;
} group;

static ncclResult_t launch(uint64_t work, cudaStream_t stream)
{
    void *args[] = {&work};
    cudaLaunchConfig_t config = {{1, 1, 1}, {512, 1, 1}, 0, stream};
    return cudaLaunchKernelExC(&config, launch, args);
}

/* The work of the next collective, which waits for the devices of the other ranks. */
static uint64_t with_peers(ncclComm_t comm, uint64_t work)
{
    if (!comm->arrivals || comm->sequence == COLLECTIVES)
        return work;
    struct collective *made = malloc(sizeof *made);
    *made = (struct collective){work, comm->arrivals + comm->sequence++ * comm->ranks, comm->ranks, comm->rank};
    return COLLECTIVE | (uint64_t)made;
}

static uint64_t *shared_arrivals(int ranks)
{
    const char *path = getenv("STANDIN_PEERS");
    int file = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
    size_t size = sizeof(uint64_t) * COLLECTIVES * ranks;
    if (file < 0 || ftruncate(file, size))
        return NULL;
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return mapped == MAP_FAILED ? NULL : mapped;
}

/* The result of a successful call: for a non-blocking communicator, ncclInProgress. */
static ncclResult_t answer(ncclComm_t comm, ncclResult_t result)
{
    return result == ncclSuccess && comm->in_progress ? ncclInProgress : result;
}

static ncclResult_t enqueue(ncclComm_t comm, size_t count, ncclDataType_t type, cudaStream_t stream)
{
    static const uint8_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    if (!comm || type < 0 || type >= (int)sizeof sizes)
        return group.depth ? (group.result = ncclInvalidArgument) : ncclInvalidArgument;
    uint64_t work = LATENCY_NS + count * sizes[type];
    if (!group.depth)
        return answer(comm, launch(with_peers(comm, work), stream));
    if (comm->in_progress && !group.result)
        group.result = ncclInProgress;
    group.calls++;
    group.work += work;
    group.stream = stream;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (!group.depth)
        return ncclInvalidUsage;
    if (--group.depth)
        return ncclSuccess;
    uint64_t work = group.work;
    int calls = group.calls;
    ncclResult_t result = group.result;
    group.calls = 0;
    group.work = 0;
    group.result = ncclSuccess;
    if (!calls || (result && result != ncclInProgress))
        return result;
    ncclResult_t launched = launch(work, group.stream);
    return launched ? launched : result;
}

static ncclResult_t create(ncclComm_t *comm, int ranks, int rank)
{
    if (rank < 0 || rank >= ranks)
        return ncclInvalidArgument;
    *comm = malloc(sizeof **comm);
    **comm = (struct ncclComm){ranks, rank, 0, shared_arrivals(ranks), 0};
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    *id = (ncclUniqueId){"stand-in"};
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
    return create(comm, ranks, rank);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config)
{
    ncclResult_t result = create(comm, ranks, rank);
    if (result)
        return result;
    (*comm)->in_progress = config && !config->blocking;
    return answer(*comm, result);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int ranks, int rank, int id_count, ncclUniqueId *ids,
                                      ncclConfig_t *config)
{
    return id_count > 0 && ids ? create(comm, ranks, rank) : ncclInvalidArgument;
}

ncclResult_t ncclCommInitAll(ncclComm_t *comms, int devices, const int *list)
{
    for (int rank = 0; rank < devices; rank++)
        create(&comms[rank], devices, rank);
    return ncclSuccess;
}

/* All ranks have the same color, and the key is the new rank. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *created, ncclConfig_t *config)
{
    return comm ? create(created, comm->ranks, key) : ncclInvalidArgument;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    if (!comm)
        return ncclInvalidArgument;
    *count = comm->ranks;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    if (!comm)
        return ncclInvalidArgument;
    *rank = comm->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    free(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    free(comm);
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream)
{
    return enqueue(comm, count, type, stream);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream)
{
    return enqueue(comm, count, type, stream);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    return enqueue(comm, count, type, stream);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    return enqueue(comm, count, type, stream);
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream)
{
    return enqueue(comm, count, type, stream);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return enqueue(comm, count, type, stream);
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    return enqueue(comm, count, type, stream);
}

EXPORT_TWICE(ncclGetUniqueId);
EXPORT_TWICE(ncclCommInitRank);
EXPORT_TWICE(ncclCommInitRankConfig);
EXPORT_TWICE(ncclCommInitRankScalable);
EXPORT_TWICE(ncclCommInitAll);
EXPORT_TWICE(ncclCommSplit);
EXPORT_TWICE(ncclCommCount);
EXPORT_TWICE(ncclCommUserRank);
EXPORT_TWICE(ncclCommDestroy);
EXPORT_TWICE(ncclCommAbort);
EXPORT_TWICE(ncclGroupStart);
EXPORT_TWICE(ncclGroupEnd);
EXPORT_TWICE(ncclAllReduce);
EXPORT_TWICE(ncclReduceScatter);
EXPORT_TWICE(ncclAllGather);
EXPORT_TWICE(ncclBroadcast);
EXPORT_TWICE(ncclReduce);
EXPORT_TWICE(ncclSend);
EXPORT_TWICE(ncclRecv);
