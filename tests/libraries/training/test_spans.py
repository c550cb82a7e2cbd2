"""The spans of docs/development/spans.md: what is written is read, and a span that lacks an attribute is an error."""

import math
import re
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from otel_zernel.otlp.points import key_values
from otel_zernel_libraries.training.interval_spans import (
    THREAD_KINDS,
    CollectiveSpan,
    DeviceSpan,
    Ending,
    Evidence,
    IntervalSpan,
    OperatorKind,
    OperatorsSpan,
    ProcessSpan,
    SkippedSpan,
    ThreadSpan,
    WorkerSpan,
    interval_of,
)
from otel_zernel_libraries.training.ledger import STATES, Snapshot
from otel_zernel_libraries.training.ledger.snapshots import FRAME_POSITIONS, SAMPLED, WAITS
from otel_zernel_libraries.training.names import PHASES
from otel_zernel_libraries.training.span_attributes import MalformedSpan
from otel_zernel_libraries.training.step_spans import (
    CriticalPath,
    JobStepSpan,
    MergedStepsSpan,
    SegmentSpan,
    StepSpan,
    step_of,
)
from otel_zernel_libraries.training.steps import bar_of

PAGE = Path(__file__).parents[3] / "docs" / "development" / "spans.md"
AnySpan = IntervalSpan | StepSpan | MergedStepsSpan | SegmentSpan | JobStepSpan

TEXT = st.text(min_size=1, max_size=20)
TEXTS = st.just("") | TEXT
COUNTS = st.integers(0, 2**63 - 1)
NUMBERS = st.integers(1, 2**31)
DURATIONS = st.integers(0, 2**50)
"""Longer ones lose nanoseconds as seconds in a double: 2**50 ns are 13 days."""
TIMES = st.integers(0, 2**63)
MAYBE = st.none() | COUNTS
PHASE_TIMES = st.tuples(*[DURATIONS] * len(PHASES))
ENDINGS = st.one_of(
    st.builds(Ending, st.just("exit"), exit_code=st.integers(0, 255)),
    st.builds(Ending, st.just("signal"), signal=st.integers(1, 64), signal_name=TEXT, is_out_of_memory=st.booleans()),
    st.builds(Ending, st.just("exec"), program=TEXT),
)
EVIDENCE = st.builds(Evidence, DURATIONS, COUNTS, COUNTS, COUNTS, COUNTS)
U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
SNAPSHOT = st.builds(
    Snapshot,
    U64,
    st.tuples(*[U64] * len(STATES)),
    *[U64] * 5,
    *[U32] * 8,
    st.tuples(*[U16] * len(SAMPLED)),
    st.tuples(*[U32] * len(FRAME_POSITIONS)),
    *[U64] * 5,
    *[U32] * 2,
    *[U64] * 2,
    st.tuples(*[U32] * len(WAITS)),
    U64,
    *[U32] * 2,
)
SNAPSHOTS = st.just(b"") | st.builds(lambda begin, end: begin.to_bytes() + end.to_bytes(), SNAPSHOT, SNAPSHOT)
COMMON = {"start_ns": TIMES, "end_ns": TIMES, "phase": TEXTS}
EDGES = st.lists(st.integers(0, 65535), max_size=16).map(lambda times: tuple(sorted(times + times)))


def with_parts(run: OperatorsSpan) -> OperatorsSpan:
    return run if run.parts > 1 else run._replace(covered_ns=0)


SPANS: dict[str, st.SearchStrategy[AnySpan]] = {
    "thread": st.builds(
        ThreadSpan,
        kind=st.sampled_from(sorted(THREAD_KINDS)),
        name=TEXTS,
        thread=NUMBERS,
        issued=st.just(0) | NUMBERS,
        scope_name=TEXTS,
        failed=st.booleans(),
        snapshots=SNAPSHOTS,
        **COMMON,
    ),
    "collective": st.builds(
        CollectiveSpan,
        operation=TEXT,
        thread=NUMBERS,
        timing_source=TEXT,
        bytes=COUNTS,
        communicator=TEXT,
        shared_communicator=TEXTS,
        sequence=st.just(0) | NUMBERS,
        rank=MAYBE,
        world_size=st.just(0) | NUMBERS,
        snapshots=SNAPSHOTS,
        **COMMON,
    ),
    "operators": st.builds(
        OperatorsSpan,
        thread=NUMBERS,
        operators=COUNTS,
        operator_kind=st.sampled_from(get_args(OperatorKind)),
        ending=st.sampled_from(["operator", "region", "next"]),
        grad=st.booleans(),
        parts=st.integers(1, 16),
        covered_ns=DURATIONS,
        edges_us=EDGES,
        gap=EVIDENCE,
        snapshots=SNAPSHOTS,
        tail=EVIDENCE,
        **COMMON,
    ).map(with_parts),
    "process": st.builds(ProcessSpan, thread=NUMBERS, ending=ENDINGS, **COMMON),
    "worker": st.builds(WorkerSpan, pid=NUMBERS, ending=ENDINGS, **COMMON),
    "step": st.builds(
        StepSpan,
        start_ns=TIMES,
        end_ns=TIMES,
        number=NUMBERS,
        kind=TEXT,
        boundary=TEXTS,
        thread=NUMBERS,
        pid=st.just(0) | NUMBERS,
        job_number=st.just(0) | NUMBERS,
        is_lossy=st.booleans(),
        overlap_ns=DURATIONS,
        phase_ns=PHASE_TIMES,
    ),
    "steps": st.builds(
        MergedStepsSpan,
        start_ns=TIMES,
        end_ns=TIMES,
        number=NUMBERS,
        kind=TEXT,
        thread=NUMBERS,
        pid=st.just(0) | NUMBERS,
        phase_ns=PHASE_TIMES,
        durations_ns=st.lists(DURATIONS).map(tuple),
    ),
    "segment": st.builds(SegmentSpan, TEXT, TIMES, TIMES, st.sampled_from(PHASES), TEXT, TEXTS, TEXTS),
    "job step": st.builds(
        JobStepSpan,
        start_ns=TIMES,
        end_ns=TIMES,
        number=NUMBERS,
        ranks=NUMBERS,
        world_size=NUMBERS,
        critical_path=st.none()
        | st.builds(
            CriticalPath, st.integers(0, 2**31), st.dictionaries(st.sampled_from(PHASES), DURATIONS, min_size=1)
        ),
    ),
}


def read_as(written: AnySpan, span: Span) -> AnySpan:
    """The span as one of the same kind. Raises `MalformedSpan`."""
    if not isinstance(written, IntervalSpan):
        return type(written).from_span(span)
    interval = interval_of(span)
    if not isinstance(interval, type(written)):
        raise MalformedSpan("zernel.interval")
    return interval


@pytest.mark.parametrize("kind", SPANS)
@given(data=st.data())
def test_a_span_is_read_as_it_was_written(kind: str, data: st.DataObject) -> None:
    span = data.draw(SPANS[kind])
    assert read_as(span, Span.FromString(span.to_span().SerializeToString())) == span


ALL = Evidence(blocked_ns=1, file_faults=2, faults=3, read=4, copies=5)
BOTH = (
    Snapshot._make(
        (1, tuple(range(len(STATES))), *range(13), (1, 2, 3, 4), (5, 6, 7, 8), *range(9), tuple(range(8)), 9, 10, 11)
    ).to_bytes()
    * 2
)
KINDS: dict[str, AnySpan] = {
    "data_loading": ThreadSpan("data_loading", "load", 1, 2, 3, "unknown", issued=4, snapshots=BOTH),
    "sync": ThreadSpan("sync", "c10d::Work::wait", 1, 2, 3, "unknown", snapshots=BOTH),
    "user": ThreadSpan("user", "user", 1, 2, 3, "unknown", scope_name="a", snapshots=BOTH),
    "collective": CollectiveSpan("send", 1, 2, 3, "host_enqueue", 0, "0x1", "unknown", "ab", 4, 0, 2, BOTH),
    "operators": OperatorsSpan(
        thread=1,
        start_ns=2,
        end_ns=3,
        phase="gpu_compute",
        operators=0,
        operator_kind="model",
        ending="next",
        grad=False,
        parts=2,
        covered_ns=5,
        edges_us=(0, 1, 2, 3),
        gap=ALL,
        tail=ALL,
        snapshots=BOTH,
    ),
    "operators that are one part": OperatorsSpan(
        thread=1, start_ns=2, end_ns=3, operators=1, operator_kind="update", ending="region", grad=True
    ),
    "process that exits": ProcessSpan(1, 2, 3, Ending("exit", exit_code=0), "unknown"),
    "process that is killed": ProcessSpan(
        1, 2, 3, Ending("signal", signal=9, signal_name="SIGKILL", is_out_of_memory=True), "unknown"
    ),
    "process that executes": ProcessSpan(1, 2, 3, Ending("exec", program="sh"), "unknown"),
    "worker that exits": WorkerSpan(1, 2, 3, Ending("exit", exit_code=1), "unknown"),
    "worker that is killed": WorkerSpan(
        1, 2, 3, Ending("signal", signal=9, signal_name="SIGKILL", is_out_of_memory=True), "unknown"
    ),
    "worker that executes": WorkerSpan(1, 2, 3, Ending("exec", program="sh"), "unknown"),
    "device": DeviceSpan(1, 2, 3, b"\xff", "unknown"),
    "skipped": SkippedSpan(1, 2, 3, 4, "unknown"),
    "step": StepSpan(
        start_ns=1,
        end_ns=2,
        number=3,
        kind="training",
        boundary="loader",
        thread=4,
        pid=5,
        job_number=6,
        is_lossy=False,
        overlap_ns=0,
        phase_ns=(0, 1, 2, 3, 4),
        cause="segment",
    ),
    "steps": MergedStepsSpan(
        start_ns=1,
        end_ns=2,
        number=3,
        kind="training",
        thread=4,
        pid=5,
        phase_ns=(0, 1, 2, 3, 4),
        durations_ns=(1, 2),
    ),
    "segment": SegmentSpan("forward", 1, 2, "gpu_compute", "forward", "forward", "operator"),
    "job step that lacks a rank": JobStepSpan(start_ns=1, end_ns=2, number=3, ranks=3, world_size=4),
    "job step": JobStepSpan(
        start_ns=1,
        end_ns=2,
        number=3,
        ranks=4,
        world_size=4,
        critical_path=CriticalPath(0, {"data_loading": 2, "unknown": 1}),
    ),
}
"""Each kind of span with all attributes that it may have, some in several ways."""
CASES = [(kind, pair.key) for kind, span in KINDS.items() for pair in span.to_span().attributes]

TOGETHER = {f"zernel.step.critical_path.{name}" for name in ("phase", "data_loading")}
"""Attributes that a span with a critical path needs."""
NAMES = re.compile(r"`((?:zernel|process|thread)\.[A-Za-z0-9_.]+)`")
ANY_PHASE = re.compile(rf"({'|'.join(PHASES)})$")


@cache
def on_the_page() -> dict[str, tuple[set[str], set[str]]]:
    """By kind of span: the attributes that all spans have, and those that some have, by the tables of the page."""
    attributes: dict[str, tuple[set[str], set[str]]] = {}
    for line in PAGE.read_text("utf-8").splitlines():
        match line.strip("|").split("|"):
            case [kinds, always, some] if NAMES.search(always):
                for kind in re.findall("`(.+?)`", kinds):
                    attributes[kind] = set(NAMES.findall(always)), set(NAMES.findall(some))
    return attributes


def changed(kind: str, key: str, change: Callable[[Span, int], None]) -> Span:
    span = KINDS[kind].to_span()
    change(span, [pair.key for pair in span.attributes].index(key))
    return span


def remove(span: Span, at: int) -> None:
    del span.attributes[at]


def misspell(span: Span, at: int) -> None:
    span.attributes[at].key += "s"


def mistype(span: Span, at: int) -> None:
    span.attributes[at].value.kvlist_value.SetInParent()


@pytest.mark.parametrize(("kind", "key"), CASES)
@pytest.mark.parametrize("change", [remove, misspell])
def test_a_span_without_an_attribute_that_it_needs_is_malformed(
    kind: str, key: str, change: Callable[[Span, int], None]
) -> None:
    span, whole = changed(kind, key, change), KINDS[kind]
    _, some = on_the_page()[kind.partition(" that ")[0]]
    if key not in TOGETHER and ANY_PHASE.sub("PHASE", key) in some:
        assert read_as(whole, span) != whole or key == "zernel.phase.source"
    else:
        with pytest.raises(MalformedSpan):
            read_as(whole, span)


@pytest.mark.parametrize(
    ("kind", "key"), [case for case in CASES if case[1] not in ("zernel.phase", "zernel.phase.source")]
)
def test_a_span_with_an_attribute_of_another_type_is_malformed(kind: str, key: str) -> None:
    with pytest.raises(MalformedSpan):
        read_as(KINDS[kind], changed(kind, key, mistype))


def test_a_span_of_another_program_is_of_no_kind() -> None:
    span = Span(name="process", attributes=key_values({"thread.id": 1, "zernel.process.end": "exit"}))
    assert interval_of(span) is None
    assert step_of(span) is None


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, 1e300])
@pytest.mark.parametrize(("kind", "key"), [("step", "zernel.phase.unknown"), ("operators", "zernel.gap.blocked")])
def test_a_time_that_is_none_is_malformed(kind: str, key: str, seconds: float) -> None:
    span = KINDS[kind].to_span()
    next(pair for pair in span.attributes if pair.key == key).value.double_value = seconds
    with pytest.raises(MalformedSpan):
        read_as(KINDS[kind], span)


def test_a_time_may_be_an_integer() -> None:
    span = KINDS["step"].to_span()
    next(pair for pair in span.attributes if pair.key == "zernel.phase.unknown").value.int_value = 2
    assert StepSpan.from_span(span).phase_ns[-1] == 2_000_000_000


@pytest.mark.parametrize("edges", ["9" * 5000, "1 x", "3 2", "1 2 3"])
def test_edges_that_are_none_are_unknown(edges: str) -> None:
    span = KINDS["operators"].to_span()
    next(pair for pair in span.attributes if pair.key == "zernel.operators.edges").value.string_value = edges
    run = interval_of(span)
    assert isinstance(run, OperatorsSpan)
    assert run.edges_us == ()


def test_a_way_to_end_that_a_newer_receiver_reports_is_read() -> None:
    process = ProcessSpan(1, 2, 3, Ending("core"))
    assert read_as(process, process.to_span()) == process
    assert not process.ending.is_over


@pytest.mark.parametrize("interval", [AnyValue(string_value=""), AnyValue(int_value=1)])
def test_an_interval_that_is_no_text_is_malformed(interval: AnyValue) -> None:
    attributes = [KeyValue(key="zernel.interval", value=interval), *key_values({"thread.id": 1})]
    with pytest.raises(MalformedSpan):
        interval_of(Span(attributes=attributes))


@given(st.permutations(range(14)))
def test_the_order_of_attributes_does_not_matter(order: list[int]) -> None:
    for kind in ("data_loading", "sync", "user", "collective"):
        span = KINDS[kind].to_span()
        pairs = [span.attributes[at] for at in order if at < len(span.attributes)]
        mixed = Span(name=span.name, start_time_unix_nano=2, end_time_unix_nano=3, attributes=pairs)
        assert interval_of(mixed) == KINDS[kind]


def test_a_span_with_the_status_ok_has_not_failed() -> None:
    span = KINDS["sync"].to_span()
    span.status.code = Status.STATUS_CODE_OK
    assert interval_of(span) == KINDS["sync"]


@given(SPANS["steps"])
def test_the_bar_of_merged_steps_has_all_of_them(span: AnySpan) -> None:
    assert isinstance(span, MergedStepsSpan)
    assert bar_of(span).steps == max(len(span.durations_ns), 1)
    assert bar_of(span).phase_ns == span.phase_ns


def test_the_page_has_the_attributes_of_each_kind() -> None:
    """The tests above show which of them a span may lack."""
    written: defaultdict[str, set[str]] = defaultdict(set)
    for name, span in KINDS.items():
        written[name.partition(" that ")[0]] |= {ANY_PHASE.sub("PHASE", pair.key) for pair in span.to_span().attributes}
    alike = {"optimizer": "data_loading", "zero_grad": "sync", "backward": "sync", "ddp": "sync"}
    page = on_the_page()
    assert {kind: always | some for kind, (always, some) in page.items()} == written | {
        kind: written[other] for kind, other in alike.items()
    }
    assert all(page[kind] == page[other] for kind, other in alike.items())
