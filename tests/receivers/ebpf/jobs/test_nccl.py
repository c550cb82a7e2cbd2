"""Collectives and communicators, compared with the program's own log."""

import pytest

from otel_zernel.batch import Batch
from tests.receivers.ebpf.standin import Program, Standin
from tests.receivers.ebpf.watching import Watch, attributes_of, calls, histogram_points, numbers, spans_of

ENQUEUE, DURATION = "zernel.nccl.collective.enqueue.duration", "zernel.nccl.collective.duration"
SIZE, ERRORS = "zernel.nccl.collective.size", "zernel.nccl.errors"
INIT = "ncclCommInitRank comm=1 ranks=8 rank=3"


def watched(watch: Watch, standin: Standin, script: str) -> tuple[Batch, Program]:
    """The receiver's reading of a script, and the program with its own log."""
    with standin.start(loads=["libcudart.so.12", "libcuda.so.1", "libnccl.so.2"]) as program:
        watch.attach()
        for command in script.split("; "):
            program.do(command)
        return watch.read(), program


@pytest.mark.parametrize(
    ("function", "operation", "parts"),
    [
        ("ncclAllReduce", "all_reduce", 1),
        ("ncclReduceScatter", "reduce_scatter", 8),
        ("ncclAllGather", "all_gather", 8),
        ("ncclBroadcast", "broadcast", 1),
        ("ncclReduce", "reduce", 1),
        ("ncclSend", "send", 1),
        ("ncclRecv", "receive", 1),
    ],
)
def test_a_collective_is_counted_with_its_bytes(
    watch: Watch, standin: Standin, function: str, operation: str, parts: int
) -> None:
    float16 = 6
    batch, program = watched(watch, standin, f"{INIT}; {function} comm=1 count=1000 type={float16} times=4")
    here = {"process_pid": program.pid, "zernel_nccl_operation": operation}
    assert calls(batch, ENQUEUE, **here) == 4
    assert calls(batch, DURATION, **here) == 0
    assert numbers(batch, SIZE, **here) == [4 * 2000 * parts]


@pytest.mark.parametrize(("type_", "size"), list(enumerate([1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1])))
def test_elements_have_their_true_size(watch: Watch, standin: Standin, type_: int, size: int) -> None:
    batch, program = watched(watch, standin, f"{INIT}; ncclAllReduce comm=1 count=10 type={type_}")
    assert numbers(batch, SIZE, process_pid=program.pid) == [10 * size]


def test_a_size_above_the_integer_range_is_the_highest_integer(watch: Watch, standin: Standin) -> None:
    batch, program = watched(watch, standin, f"{INIT}; ncclAllGather comm=1 count={1 << 60} type=0")
    assert numbers(batch, SIZE, process_pid=program.pid) == [(1 << 63) - 1]
    assert collective_span(batch, program.pid)["zernel_nccl_bytes"] == (1 << 63) - 1


def test_the_span_of_a_collective_has_communicator_rank_and_size(watch: Watch, standin: Standin) -> None:
    batch, program = watched(watch, standin, f"{INIT}; ncclAllReduce comm=1 count=10 type=7")
    (span,) = [span for span in spans_of(batch, program.pid) if span.name == "all_reduce"]
    (call,) = program.calls("ncclAllReduce")
    attributes = attributes_of(span)
    assert attributes["zernel_interval"] == "collective"
    assert (attributes["zernel_rank"], attributes["zernel_world_size"]) == (3, 8)
    assert attributes["zernel_nccl_communicator"] == f"{call['pointer']:#x}"
    assert attributes["zernel_nccl_bytes"] == 40
    assert attributes["zernel_timing_source"] == "host_enqueue"
    (resource,) = [
        resource_span.resource
        for resource_span in batch.spans.resource_spans
        if span in resource_span.scope_spans[0].spans
    ]
    assert (
        attributes_of(resource).items()
        >= {"zernel_rank": 3, "zernel_world_size": 8, "zernel_rank_source": "nccl"}.items()
    )


ASKED = f"{INIT}; ncclCommSplit comm=1 rank=1; ncclCommCount comm=2; ncclCommUserRank comm=2"
"""A split communicator, about which the program asks NCCL."""


@pytest.mark.parametrize(
    ("made", "communicator", "rank", "size"),
    [
        ("ncclCommInitRank comm=1 ranks=4 rank=2", 1, 2, 4),
        ("ncclCommInitRankConfig comm=1 ranks=4 rank=2", 1, 2, 4),
        ("ncclCommInitRankScalable comm=1 ranks=4 rank=2", 1, 2, 4),
        (ASKED, 2, 1, 8),
    ],
)
def test_every_init_function_and_the_programs_own_questions_give_rank_and_size(
    watch: Watch, standin: Standin, made: str, communicator: int, rank: int, size: int
) -> None:
    batch, program = watched(watch, standin, f"{made}; ncclAllGather comm={communicator} count=100 type=0")
    assert collective_span(batch, program.pid).items() >= {"zernel_rank": rank, "zernel_world_size": size}.items()
    assert numbers(batch, SIZE, process_pid=program.pid) == [100 * size]


def collective_span(batch: Batch, pid: int) -> dict[str, object]:
    """The attributes of the only collective's span."""
    attributes = map(attributes_of, spans_of(batch, pid))
    (collective,) = [attribute for attribute in attributes if attribute["zernel_interval"] == "collective"]
    return collective


def test_rank_and_size_of_a_split_communicator_are_unknown(watch: Watch, standin: Standin) -> None:
    script = f"{INIT}; ncclCommSplit comm=1 rank=1; ncclAllGather comm=2 count=100 type=0"
    batch, program = watched(watch, standin, script)
    assert not {"zernel_rank", "zernel_world_size"} & set(collective_span(batch, program.pid))
    assert numbers(batch, SIZE, process_pid=program.pid) == [100], "the own share only"


def test_communicators_of_all_devices_have_a_rank_each(watch: Watch, standin: Standin) -> None:
    batch, program = watched(watch, standin, "ncclCommInitAll comm=2 ranks=4; ncclAllGather comm=4 count=10 type=0")
    assert collective_span(batch, program.pid).items() >= {"zernel_rank": 2, "zernel_world_size": 4}.items()
    assert numbers(batch, SIZE, process_pid=program.pid) == [40]
    (resource,) = [resource_span.resource for resource_span in batch.spans.resource_spans]
    assert "zernel_rank" not in attributes_of(resource), "the process has all ranks"


def test_ranks_of_communicators_made_before_attaching_come_from_the_environment(
    fresh_watch: Watch, standin: Standin
) -> None:
    with standin.start(
        environment={"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, loads=["libnccl.so.2"]
    ) as program:
        program.do("ncclCommInitRank comm=1 ranks=8 rank=5")
        fresh_watch.attach()
        program.do("ncclAllReduce comm=1 count=10 type=0")
        batch = fresh_watch.read()
        fresh_watch.taken()
        program.do("ncclAllGather comm=1 count=10 type=0")
        later = fresh_watch.read()
    (resource,) = [resource_span.resource for resource_span in batch.spans.resource_spans]
    inferred = {"zernel_rank": 5, "zernel_world_size": 8, "zernel_local_rank": 1, "zernel_rank_source": "environ"}
    assert attributes_of(resource).items() >= inferred.items()
    assert "zernel_rank" not in collective_span(batch, program.pid), (
        "the environment says nothing about this communicator"
    )
    assert numbers(later, SIZE, process_pid=program.pid, zernel_nccl_operation="all_gather") == [80]


def test_the_rank_from_nccl_replaces_the_rank_from_the_environment(watch: Watch, standin: Standin) -> None:
    with standin.start(
        environment={"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "99999999999999999999"}, loads=["libnccl.so.2"]
    ) as program:
        watch.attach()
        program.do("ncclCommInitRank comm=1 ranks=8 rank=5")
        program.do("ncclAllReduce comm=1 count=10 type=0")
        (resource,) = [resource_span.resource for resource_span in watch.read().spans.resource_spans]
    assert attributes_of(resource)["zernel_rank_source"] == "nccl"
    assert "zernel_local_rank" not in attributes_of(resource), "the number is too large for a rank"


def test_a_wait_ends_the_collectives_enqueued_before_it(watch: Watch, standin: Standin) -> None:
    batch, program = watched(
        watch, standin, f"{INIT}; ncclAllReduce comm=1 count=5000000 type=7 times=3; cudaDeviceSynchronize"
    )
    (bound,) = histogram_points(batch, DURATION, process_pid=program.pid)
    begins = program.calls("ncclAllReduce")["start"]
    (end,) = program.calls("cudaDeviceSynchronize")["end"]
    truth = sum(int(end - begin) for begin in begins) / 1e9
    assert bound.count == 3
    assert truth / 10 < bound.sum <= truth


@pytest.mark.parametrize(
    "sync",
    [
        "cudaStreamSynchronize stream=3",
        "cuStreamSynchronize stream=3",
        "cudaStreamSynchronize stream=4",
        "cudaDeviceSynchronize",
        "cuCtxSynchronize",
        "cudaEventRecord event=1 stream=3; cudaEventSynchronize event=1",
    ],
)
def test_the_next_wait_for_the_gpu_ends_a_collective(watch: Watch, standin: Standin, sync: str) -> None:
    script = f"{INIT}; ncclAllReduce comm=1 count=10 type=7 stream=3; {sync}; {sync}"
    batch, program = watched(watch, standin, script)
    assert calls(batch, DURATION, process_pid=program.pid) == 1


def test_nothing_is_launched_before_the_outermost_group_ends(watch: Watch, standin: Standin) -> None:
    calls_in_group = "ncclAllReduce comm=1 count=10 type=7; sleep times=20; ncclSend comm=1 count=10 type=7"
    script = f"{INIT}; ncclGroupStart; ncclGroupStart; {calls_in_group}; ncclGroupEnd; sleep times=20; ncclGroupEnd"
    batch, program = watched(watch, standin, script)
    reduce, send = sorted(
        (span for span in spans_of(batch, program.pid) if attributes_of(span)["zernel_interval"] == "collective"),
        key=lambda span: span.start_time_unix_nano,
    )
    assert (reduce.name, send.name) == ("all_reduce", "send")
    assert reduce.end_time_unix_nano == send.end_time_unix_nano
    assert send.end_time_unix_nano - send.start_time_unix_nano >= 20_000_000


def test_failed_collectives_are_errors_and_nothing_else(watch: Watch, standin: Standin) -> None:
    batch, program = watched(watch, standin, "ncclAllReduce null=1 count=10 type=7 times=2; ncclGroupEnd")
    assert calls(batch, ENQUEUE, process_pid=program.pid) == calls(batch, DURATION, process_pid=program.pid) == 0
    assert numbers(batch, ERRORS, process_pid=program.pid, error_type="invalid_argument") == [2]
    assert numbers(batch, ERRORS, process_pid=program.pid, error_type="invalid_usage") == [1]


def test_a_failed_group_has_no_collectives_and_the_next_call_is_in_no_group(watch: Watch, standin: Standin) -> None:
    group = "ncclGroupStart; ncclAllReduce comm=1 count=10 type=7; ncclAllReduce null=1 count=10 type=7; ncclGroupEnd"
    batch, program = watched(watch, standin, f"{INIT}; {group}; ncclSend comm=1 count=10 type=7")
    assert collective_span(batch, program.pid)["zernel_nccl_operation"] == "send"
    assert calls(batch, ENQUEUE, process_pid=program.pid) == 1
    assert numbers(batch, ERRORS, process_pid=program.pid, error_type="invalid_argument") == [2]


def test_calls_of_communicators_that_do_not_block_are_no_errors(watch: Watch, standin: Standin) -> None:
    init = "ncclCommInitRankConfig comm=1 ranks=8 rank=3 nonblocking=1"
    reduce = "ncclAllReduce comm=1 count=10 type=7"
    batch, program = watched(watch, standin, f"{init}; ncclGroupStart; {reduce}; {reduce}; ncclGroupEnd; {reduce}")
    assert set(program.calls("ncclCommInitRankConfig", "ncclGroupEnd")["result"]) == {7}
    assert calls(batch, ENQUEUE, process_pid=program.pid) == 3
    assert numbers(batch, ERRORS, process_pid=program.pid) == []
    (resource,) = [resource_span.resource for resource_span in batch.spans.resource_spans]
    assert attributes_of(resource).items() >= {"zernel_rank": 3, "zernel_world_size": 8}.items()


def test_launches_of_nccl_s_own_runtime_are_counted_at_the_driver(watch: Watch, standin: Standin) -> None:
    batch, program = watched(watch, standin, f"{INIT}; ncclAllReduce comm=1 count=10 type=7 times=5")
    latency = "zernel.cuda.launch.latency"
    assert calls(batch, latency, process_pid=program.pid, zernel_cuda_api="driver") == 5


def sequences(batch: Batch, pid: int) -> list[object]:
    """The numbers of all enqueued collectives, in order."""
    attributes = map(attributes_of, spans_of(batch, pid))
    enqueued = [attribute for attribute in attributes if attribute.get("zernel_timing_source") == "host_enqueue"]
    return [one.get("zernel_collective_sequence") for one in enqueued]


def test_collectives_are_counted_from_the_creation_of_their_communicator(watch: Watch, standin: Standin) -> None:
    calls = (
        "ncclAllReduce comm=1 count=10 type=7; ncclAllReduce comm=2 count=10 type=7; ncclSend comm=1 count=10 type=7"
    )
    script = f"{INIT}; ncclCommInitRank comm=2 ranks=2 rank=1; {calls}; {calls}; ncclCommCount comm=1; {calls}"
    batch, program = watched(watch, standin, script)
    assert sequences(batch, program.pid) == [1, 1, None, 2, 2, None, 3, 3, None]


def test_a_communicator_at_the_address_of_an_earlier_one_counts_anew(watch: Watch, standin: Standin) -> None:
    call = "ncclAllReduce comm=1 count=10 type=7"
    batch, program = watched(watch, standin, f"{INIT}; {call}; {call}; ncclCommDestroy comm=1; {INIT}; {call}")
    assert sequences(batch, program.pid) == [1, 2, 1]


def test_all_ranks_name_a_communicator_alike(watch: Watch, standin: Standin) -> None:
    script = "ncclCommInitRank comm=1 ranks=4 rank={}; ncclAllReduce comm=1 count=10 type=7"
    names = set()
    for rank in range(2):
        batch, program = watched(watch, standin, script.format(rank))
        names.add(collective_span(batch, program.pid)["zernel_collective_communicator"])
        watch.taken()
    assert len(names) == 1
    assert len(str(names.pop())) == 16


def test_collectives_of_a_communicator_made_before_attaching_have_no_number(
    fresh_watch: Watch, standin: Standin
) -> None:
    with standin.start(loads=["libnccl.so.2"]) as program:
        program.do(INIT)
        fresh_watch.attach()
        program.do("ncclAllReduce comm=1 count=10 type=7")
        program.do("ncclCommCount comm=1")
        program.do("ncclAllReduce comm=1 count=10 type=7")
        batch = fresh_watch.read()
    assert sequences(batch, program.pid) == [None, None]
