"""Waits for other ranks in unmodified PyTorch: two ranks with gloo, one of them late."""

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.receivers.ebpf.talking import started
from tests.receivers.ebpf.watching import Watch, attributes_of, reading, spans_of

SCRIPT = Path(__file__).with_name("train_distributed.py")
STEPS = 5
LATE_NS = 100_000_000


@pytest.mark.timeout(300)  # two ranks load several GB of libraries where PyTorch is one for CUDA
def test_waits_for_other_ranks_are_emitted_and_exceptions_pass(watch: Watch, python: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        commands = [(python, SCRIPT, str(number), tmp_path / "store", str(STEPS)) for number in range(2)]
        ranks = [stack.enter_context(started(*command)) for command in commands]
        assert [rank.line() for rank in ranks] == ["ready", "ready"]
        watch.attach()
        with reading(watch):
            for rank in ranks:
                rank.say()
            assert [json.loads(rank.line())["caught"] for rank in ranks] == [True, False]
        batch = watch.read()
        for rank in ranks:
            rank.say()
        assert [rank.process.wait() for rank in ranks] == [0, 0], "the job is unharmed"
    resources = [attributes_of(resource_span.resource) for resource_span in batch.spans.resource_spans]
    known = {
        resource["process_pid"]: (resource.get("zernel_rank"), resource.get("zernel_world_size"))
        for resource in resources
    }
    assert [known[rank.pid] for rank in ranks] == [(0, 2), (1, 2)], "the environment does not have them"
    spans = spans_of(batch, ranks[0].pid)
    backwards = named(spans, "backward", "backward")
    reducers = named(spans, "ddp", "c10d::Reducer::finalize_backward")
    waits = named(spans, "sync", "c10d::Work::wait")
    assert len(reducers) == len(backwards) == STEPS
    for outer, inner in zip(backwards, reducers, strict=True):
        assert outer.start_time_unix_nano < inner.start_time_unix_nano
        assert inner.end_time_unix_nano == outer.end_time_unix_nano
    assert duration_ns(reducers) + duration_ns(waits) > STEPS * LATE_NS / 2, "rank 1 keeps rank 0 waiting"
    assert len(waits) >= 2
    assert all(duration_ns([wait]) < 3 * 10**9 for wait in waits), "a failed wait has no end"


def named(spans: list[Span], interval: str, name: str) -> list[Span]:
    """The spans of an interval with this name, in order."""
    found = [span for span in spans if (attributes_of(span)["zernel_interval"], span.name) == (interval, name)]
    return sorted(found, key=lambda span: span.start_time_unix_nano)


def duration_ns(spans: list[Span]) -> int:
    """The sum of the durations."""
    return sum(span.end_time_unix_nano - span.start_time_unix_nano for span in spans)
