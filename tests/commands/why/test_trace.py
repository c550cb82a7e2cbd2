"""The trace of the watched steps, read with the message classes of Perfetto's own package."""

from collections import defaultdict
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import BUILTIN_CLOCK_REALTIME, Trace, TrackEvent

from otel_zernel.batch import Batch
from otel_zernel_commands.why.findings import JobFindings, report_on
from otel_zernel_commands.why.rendering import perfetto_trace
from otel_zernel_commands.why.watch import Slice, Slices
from otel_zernel_commands.why.watch.slices import MOST_SLICES
from otel_zernel_libraries.job_choice import JobChoice
from tests.commands.why.recorded_runs import circumstances, processed, report, seen


def read(jobs: tuple[JobFindings, ...], slices: list[Slice]) -> Any:
    trace = Trace()
    trace.ParseFromString(perfetto_trace(jobs, slices))
    return trace


def recorded(name: str, *, is_job: bool = False) -> tuple[tuple[JobFindings, ...], Slices]:
    """The jobs of a recorded run, and its slices."""
    slices = Slices()
    for batch in processed(name, is_job=is_job):
        slices.take(batch)
    return report(name, is_job=is_job).jobs, slices


def nested(trace: Any) -> dict[int, list[tuple[str, int, int, int]]]:
    """By track: name, depth, begin and end of each slice. Every end has a begin, and times never go back."""
    found: dict[int, list[tuple[str, int, int, int]]] = defaultdict(list)
    still_open: dict[int, list[tuple[str, int]]] = defaultdict(list)
    times: dict[int, list[int]] = defaultdict(list)
    for packet in (one for one in trace.packet if one.HasField("track_event")):
        event = packet.track_event
        times[event.track_uuid].append(packet.timestamp)
        outer = still_open[event.track_uuid]
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            outer.append((event.name, packet.timestamp))
        else:
            assert event.type == TrackEvent.TYPE_SLICE_END
            name, begin = outer.pop()
            found[event.track_uuid].append((name, len(outer), begin, packet.timestamp))
    assert not any(still_open.values())
    assert all(before <= after for several in times.values() for before, after in pairwise(several))
    return found


def test_each_rank_is_a_process_whose_thread_has_steps_with_their_parts() -> None:
    jobs, slices = recorded("gloo, DDP, a late rank", is_job=True)
    trace = read(jobs, slices.all)
    tracks = {
        one.track_descriptor.uuid: one.track_descriptor for one in trace.packet if one.HasField("track_descriptor")
    }
    processes = {
        track.process.pid: track.process.process_name for track in tracks.values() if track.HasField("process")
    }
    assert processes == {rank.pid: f"train.py, rank {rank.rank}" for rank in jobs[0].ranks}
    found = nested(trace)
    assert {tracks[tracks[uuid].parent_uuid].process.pid for uuid in found} == processes.keys()
    threads = [several for uuid, several in found.items() if tracks[uuid].name.startswith("thread ")]
    assert len(threads) == 2
    for several in threads:
        steps = [
            (begin, end) for name, depth, begin, end in several if depth == 0 and name.startswith("training step ")
        ]
        assert len(steps) == jobs[0].ranks[0].steps
        parts = [one for one in several if one[1] == 1]
        assert {"data loading", "optimizer"} <= {name.partition(":")[0] for name, *_ in parts}
        inside = sum(end - begin for _, _, begin, end in parts)
        assert inside == pytest.approx(sum(end - begin for _, depth, begin, end in several if depth == 0), rel=0.02)


def test_times_are_those_of_the_clock_that_the_trace_declares() -> None:
    jobs, slices = recorded("AdamW")
    trace = read(jobs, slices.all)
    snapshot = trace.packet[0].clock_snapshot
    assert snapshot.primary_trace_clock == BUILTIN_CLOCK_REALTIME
    events = [one for one in trace.packet if one.HasField("track_event")]
    assert {event.timestamp_clock_id for event in events} == {BUILTIN_CLOCK_REALTIME}
    assert min(event.timestamp for event in events) == snapshot.clocks[0].timestamp
    assert {one.trusted_packet_sequence_id for one in trace.packet} == {1}
    bars = jobs[0].ranks[0].bars
    assert min(event.timestamp for event in events) == min(bar.start_ns for bar in bars)


def test_only_the_jobs_of_the_report_are_in_the_trace() -> None:
    jobs, slices = recorded("gloo, DDP, a late rank")
    first = jobs[:1]
    processes = [one.track_descriptor.process.pid for one in read(first, slices.all).packet
                 if one.track_descriptor.HasField("process")]  # fmt: skip
    assert processes == [first[0].ranks[0].pid]


TIMES = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted)


@given(st.lists(TIMES, max_size=30))
def test_slices_that_overlap_get_tracks_of_their_own_and_none_is_lost(times: list[list[int]]) -> None:
    [job] = JOBS
    pid = job.ranks[0].pid
    slices = [Slice(pid, "collectives", f"{at}", "collective", *both) for at, both in enumerate(times)]
    found = nested(read((job,), slices))
    shown = sorted((begin, end, name) for several in found.values() for name, _, begin, end in several)
    assert shown == sorted((start, end, f"{at}") for at, (start, end) in enumerate(times))


JOBS = report_on(seen("AdamW"), JobChoice(), circumstances()).jobs


def test_a_trace_is_bounded() -> None:
    slices = Slices()
    slices.all = [Slice(1, "thread 1", "x", "step", 0, 1)] * (MOST_SLICES - 1)
    for batch in processed("AdamW"):
        slices.take(batch)
    assert len(slices.all) == MOST_SLICES
    assert slices.is_full


def test_spans_of_others_make_no_slices() -> None:
    batch = processed("AdamW")[-1].copy()
    for scope in (scope for resource_span in batch.edit_spans().resource_spans for scope in resource_span.scope_spans):
        scope.scope.name = "other"
    slices = Slices()
    slices.take(batch)
    slices.take(Batch())
    assert slices.all == []
