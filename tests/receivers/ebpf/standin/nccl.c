/* A stand-in for libnccl.so.2. Like the real one, it is linked with a private copy of the runtime, and exports every call
 * as ncclX and pncclX at the same address. A communicator needs no peers: its calls never wait for one. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "standin.h"

struct ncclComm { int ranks, rank, in_progress; };

enum { LATENCY_NS = 5000 };

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
        return answer(comm, launch(work, stream));
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
    **comm = (struct ncclComm){ranks, rank, 0};
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
