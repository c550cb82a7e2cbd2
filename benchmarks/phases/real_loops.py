"""The phases of real training loops, compared with the loops' own record.

Each scenario of `training/truth.py` is a process. Its spans come from the live eBPF receiver, or from a recorded real
run. The traces of the phases processor are compared with the truth: the phase of points spread evenly over the loop,
and the start and end of each interval.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from benchmarks import BenchmarkRow
from benchmarks.training.runs import Truth, source
from benchmarks.training.scenarios import SCENARIOS, Scenario
from otel_zernel.batch import Batch
from otel_zernel.testing import make_context
from otel_zernel_processors.phases import PhasesProcessor
from otel_zernel_processors.phases.emit.metrics import SCOPE

SAMPLES = 200_000
BOUNDARY_US = 150
OVERLAP = 0.05
"""Maximum relative error of the time of hidden collectives."""

PHASES_OF = {
    "data": {"data_loading"},
    "end of data": {"data_loading"},
    "forward": {"gpu_compute"},
    "backward": {"gpu_compute"},
    "clip": {"gpu_compute"},
    "evaluate": {"gpu_compute"},
    "wait": {"gpu_compute"},
    "collective": {"nccl_collective"},
    "optimizer": {"optimizer_step"},
    "zero_grad": {"optimizer_step"},
    "checkpoint": {"unknown"},
}
"""The phase that the processor should report for this record of the loop."""
_WITHIN_DDP = {"gpu_compute", "nccl_collective"}
DDP = {**PHASES_OF, "backward": _WITHIN_DDP, "agreement": _WITHIN_DDP}
"""In DDP's backward pass, and the forward pass in which it agrees on buckets, the loop cannot separate waiting from
computing."""
EDGES = {
    "data": {"load"},
    "backward": {"backward", "collective"},
    "optimizer": {"optimizer"},
    "zero_grad": {"zero_grad"},
    "collective": {"collective"},
    "wait": {"gpu_wait"},
}
"""The intervals whose edges are compared: the loop's name, and the phases of ours (DDP waits within backward)."""

Mark = tuple[str, int, int]
"""One record of the loop: its name, start and end in ns."""
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class TracePiece:
    """A part of a step in the traces: [start, end) in ns."""

    start: int
    end: int
    name: str
    phase: str


@dataclass
class ReportedPhases:
    """The traces of a process."""

    pieces: list[TracePiece] = field(default_factory=list)
    """In order."""
    gap_ns: int = 0
    """The largest difference between a step and the sum of its pieces, in ns."""
    hidden_ns: int = 0
    """Time of collectives that overlapped other work of the training thread, in ns."""


@dataclass(frozen=True)
class Score:
    """The agreement of the phases of one process with the truth."""

    agreement: float
    """Share of the points with the correct phase, 0 to 1."""
    edges_us: dict[str, list[float]]
    """The delay of each edge in us, by kind of edge."""
    gap_ns: int
    """The largest difference between a step and the sum of its phases, in ns."""
    hidden_ns: tuple[int, int]
    """The time of hidden collectives, reported and true, in ns."""


def phases_of(batches: Iterable[Batch]) -> dict[int, ReportedPhases]:
    """The traces of each process, by pid."""
    settings = {"traces": {"sample": 1, "max_steps": 1_000_000}}
    config = PhasesProcessor.Config.model_validate(settings)
    processor = PhasesProcessor(config, make_context("processors", "phases"))
    made = [out for batch in batches for out in processor.process(batch)]
    found: dict[int, ReportedPhases] = defaultdict(ReportedPhases)
    for batch in [*made, *processor.flush()]:
        for resource in batch.spans.resource_spans if batch.spans else ():
            pid = _value(resource.resource.attributes, "process.pid").int_value
            if not pid:  # a job of several ranks
                continue
            reported = found[pid]
            for scope in resource.scope_spans:
                if scope.scope.name == SCOPE.name:  # spans of the ends of processes come from the receiver
                    _read(reported, scope.spans)
    for reported in found.values():
        reported.pieces.sort(key=lambda piece: piece.start)
    return found


def _read(reported: ReportedPhases, spans: Sequence[Span]) -> None:
    """Adds the steps among the spans, each before its pieces. Their parents are the steps of the job, if any."""
    short: dict[bytes, int] = {}
    own = {span.span_id for span in spans}
    for span in spans:
        start, end = span.start_time_unix_nano, span.end_time_unix_nano
        if span.parent_span_id not in own:
            short[span.span_id] = end - start
            reported.hidden_ns += round(_value(span.attributes, "zernel.collective.overlap").double_value * 1e9)
        elif span.parent_span_id in short:
            short[span.parent_span_id] -= end - start
            reported.pieces.append(
                TracePiece(start, end, span.name, _value(span.attributes, "zernel.phase").string_value)
            )
    reported.gap_ns = max([reported.gap_ns, *map(abs, short.values())])


def _value(attributes: Iterable[KeyValue], key: str) -> AnyValue:
    """The value of an attribute; an empty one without it."""
    return next((attribute.value for attribute in attributes if attribute.key == key), AnyValue())


def score(reported: ReportedPhases, truth: Truth, expected: dict[str, set[str]]) -> Score:
    """Compares the traces with the truth."""
    pieces, hidden = reported.pieces, (reported.hidden_ns, truth["hidden"])
    if not pieces:
        return Score(0.0, {}, reported.gap_ns, hidden)
    marks: list[Mark] = truth["marks"]
    begin, end = truth["loop"]
    points = begin + np.linspace(0, end - begin, SAMPLES).astype(np.int64)
    said = _at(points, [(piece.start, piece.end) for piece in pieces])
    true = _at(points, [(start, end) for _, start, end in marks])
    right = [
        pieces[ours].phase in expected[marks[theirs][0]] if ours >= 0 else False
        for ours, theirs in zip(said.tolist(), true.tolist(), strict=True)
        if theirs >= 0
    ]
    return Score(float(np.mean(right)), dict(_edges(pieces, marks)), reported.gap_ns, hidden)


def _at(points: Ints, spans: Sequence[tuple[int, int]]) -> Ints:
    """The index of the span around each point, or -1. Spans do not overlap, in any order."""
    order = sorted(range(len(spans)), key=lambda index: spans[index])
    starts, ends = (np.array([spans[index][side] for index in order], np.int64) for side in (0, 1))
    found = np.searchsorted(starts, points, "right") - 1
    inside = (found >= 0) & (points < ends[found])
    return np.where(inside, np.array(order, np.int64)[found], -1)


def _edges(pieces: Sequence[TracePiece], marks: Sequence[Mark]) -> Iterator[tuple[str, list[float]]]:
    """The delay in us of the start and the end of the best matching interval."""
    for name, names in EDGES.items():
        ours = _joined(pieces, names)
        true = [(start, end) for named, start, end in marks if named == name]
        pairs = [(min(ours, key=lambda our: abs(our[0] - s) + abs(our[1] - e)), s, e) for s, e in true if ours]
        if pairs:
            yield f"{name} begins", [(one[0] - start) / 1e3 for one, start, _ in pairs]
            yield f"{name} ends", [(one[1] - end) / 1e3 for one, _, end in pairs]


def _joined(pieces: Sequence[TracePiece], names: set[str]) -> list[tuple[int, int]]:
    """The intervals in which pieces of these kinds follow each other without a gap."""
    joined: list[tuple[int, int]] = []
    for piece in pieces:
        if piece.name not in names:
            continue
        if joined and joined[-1][1] == piece.start:
            joined[-1] = (joined[-1][0], piece.end)
        else:
            joined.append((piece.start, piece.end))
    return joined


def expected_of(scenario: Scenario) -> dict[str, set[str]]:
    """The phase that the processor should report for this record of the loop."""
    return DDP if scenario.ranks > 1 and scenario.ddp else PHASES_OF


def scores(batches: Iterable[Batch], truths: Sequence[Truth], scenario: Scenario) -> list[Score]:
    """The score of each rank."""
    expected, made = expected_of(scenario), phases_of(batches)
    return [score(made.get(truth["pid"], ReportedPhases()), truth, expected) for truth in truths]


def bar(scenario: Scenario) -> float:
    """The target for the agreement."""
    return 0.98 if scenario.workers else 0.99


def rows(name: str, found: list[Score], bar: float) -> Iterator[BenchmarkRow]:
    """The rows of a scenario."""
    agreement = min((one.agreement for one in found), default=0.0)
    yield BenchmarkRow(f"phases: {name}: agreement", f"{agreement:.2%}", f">= {bar:.0%}", agreement >= bar)
    for hidden, true in (one.hidden_ns for one in found):
        if true:
            value, off = f"{hidden / 1e6:.1f} of {true / 1e6:.1f} ms", abs(hidden / true - 1)
            yield BenchmarkRow(f"phases: {name}: hidden collectives", value, f"within {OVERLAP:.0%}", off <= OVERLAP)


def rows_of_all(found: Sequence[Score]) -> Iterator[BenchmarkRow]:
    """The rows on edges and on the sum of phases, over all scenarios."""
    edges: dict[str, list[float]] = defaultdict(list)
    for one in found:
        for kind, late in one.edges_us.items():
            edges[kind] += late
    for kind, late in edges.items():
        middle, far = np.percentile(np.abs(late), [50, 99])
        value = f"p50 {middle:.0f} us, p99 {far:.0f} us"
        yield BenchmarkRow(f"phases: {kind}", value, f"p50 <= {BOUNDARY_US} us", bool(middle <= BOUNDARY_US))
    gap = max((one.gap_ns for one in found), default=0)
    yield BenchmarkRow("phases: largest gap between a step and its phases", f"{gap} ns", "<= 1000 ns", gap <= 1000)


def run() -> list[BenchmarkRow]:
    """The agreement of every scenario, then the edges."""
    made: list[BenchmarkRow] = []
    found: list[Score] = []
    name_of_source, spans_of = source()
    for name, scenario in SCENARIOS.items():
        some = scores(*spans_of(name), scenario)
        found += some
        made += rows(f"{name} ({name_of_source})", some, bar(scenario))
    return [*made, *rows_of_all(found)]
