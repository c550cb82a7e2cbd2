"""Compares the traces of the phases processor with the truth of a program."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span

from benchmarks.phases.real_loops import DDP, PHASES_OF, SAMPLES
from benchmarks.training.runs import Run, Truth
from otel_zernel.batch import Batch
from otel_zernel.testing import make_context
from otel_zernel_processors.phases import PhasesProcessor
from tests.frameworks.programs import Program
from tests.frameworks.running import without

SETTINGS = {
    "interval": "1s",
    "window": "20s",
    "traces": {"sample": 1, "max_steps": 1_000_000, "max_spans": 1_000_000},
}
"""Every step becomes a whole trace."""
EXPECTED = {
    **PHASES_OF,
    "rollout": {"gpu_compute"},
    "generate": {"gpu_compute"},
    "host": {"unknown"},
    "prepare": {"data_loading", "unknown"},
    "average": {"optimizer_step"},
    "issue": {"nccl_collective", "gpu_compute"},
}
"""The phases that are correct for each region of a program."""
_SHOWN_S = 0.0005
NONE, MERGED = "no step", "less in a sum of regions"


@dataclass(frozen=True)
class Piece:
    """A part of a step in the traces: [start, end) in ns."""

    start: int
    end: int
    name: str
    phase: str
    detail: str


@dataclass
class Found:
    """What the processor found of one process."""

    pieces: dict[int, list[Piece]] = field(default_factory=lambda: defaultdict(list))
    """By the id of the training thread; 0 if the trace does not name it."""
    steps: list[tuple[int, int, dict[str, Any]]] = field(default_factory=list)
    """Start, end and attributes of each step."""
    verdict: str = "none"
    """The last one."""


@dataclass(frozen=True)
class Score:
    """The agreement of the phases of one training thread with its truth."""

    agreement: float
    """Share of the points with the correct phase, 0 to 1."""
    confused: dict[tuple[str, str], float]
    """Seconds by true region and wrong phase."""
    steps: tuple[int, int]
    """True number of steps, and the number found in the loop."""
    boundaries: Counter[str]
    """The steps by `zernel.step.boundary`."""
    kinds: Counter[str]
    """The steps by `zernel.step.kind`."""
    verdict: str
    versions: dict[str, str]

    def agrees_with(self, program: Program) -> bool:
        """Whether it reaches the floor, and found every step, up to one at the end of the loop."""
        boundary = self.boundaries.most_common(1)[0][0] if self.boundaries else ""
        all_steps = abs(self.steps[0] - self.steps[1]) <= 1 and boundary == program.boundary
        return self.agreement >= program.floor and all_steps


@dataclass
class Job:
    """What the processor found of the job of all ranks."""

    verdict: str = "none"
    """The last one."""
    lateness: dict[int, float] = field(default_factory=dict)
    """Seconds by rank, the last values."""


def found_in(batches: Iterable[Batch]) -> dict[int, Found]:
    """The steps and the verdict of each process, by pid."""
    found: dict[int, Found] = defaultdict(Found)
    for batch in _processed(batches):
        for resource in batch.spans.resource_spans:
            _read(found, resource)
        for _, attributes in _points(batch, "zernel.verdict", 1):
            found[attributes["process.pid"]].verdict = attributes["zernel.verdict"]
    return found


def job_in(batches: Iterable[Batch]) -> Job:
    """The verdict of the job, and how late its ranks are."""
    job = Job()
    for batch in _processed(batches):
        for _, attributes in _points(batch, "zernel.job.verdict", 1):
            job.verdict = attributes["zernel.job.verdict"]
        job.lateness |= {rank["zernel.rank"]: late for late, rank in _points(batch, "zernel.job.rank.lateness")}
    return job


def _processed(batches: Iterable[Batch]) -> list[Batch]:
    processor = PhasesProcessor(PhasesProcessor.Config.model_validate(SETTINGS), make_context("processors", "phases"))
    made = [out for batch in batches for out in processor.process(batch)]
    return [*made, *processor.flush()]


def _points(batch: Batch, name: str, value: float | None = None) -> Iterator[tuple[float, dict[str, Any]]]:
    """The points of a gauge with this value, or with any."""
    scopes = (scope for resource in batch.metrics.resource_metrics for scope in resource.scope_metrics)
    for metric in (metric for scope in scopes for metric in scope.metrics if metric.name == name):
        for point in metric.gauge.data_points:
            found = getattr(point, point.WhichOneof("value") or "as_double")
            if point.flags == 0 and value in (None, found):
                yield found, _attributes(point.attributes)


def _read(found: dict[int, Found], resource: ResourceSpans) -> None:
    """Adds the steps of a process, each before its pieces."""
    pid = _attributes(resource.resource.attributes).get("process.pid", 0)
    steps: dict[bytes, int] = {}
    for span in (span for scope in resource.scope_spans for span in scope.spans):
        attributes = _attributes(span.attributes)
        if span.name == "step" and "zernel.step.kind" in attributes:
            steps[span.span_id] = attributes.get("thread.id", 0)
            found[pid].steps.append((span.start_time_unix_nano, span.end_time_unix_nano, attributes))
        elif span.parent_span_id in steps:
            found[pid].pieces[steps[span.parent_span_id]].append(_piece(span, attributes))


def _piece(span: Span, attributes: dict[str, Any]) -> Piece:
    phase, detail = (str(attributes.get(name, "")) for name in ("zernel.phase", "zernel.phase.detail"))
    return Piece(span.start_time_unix_nano, span.end_time_unix_nano, span.name, phase, detail)


def _attributes(attributes: Iterable[KeyValue]) -> dict[str, Any]:
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value") or "string_value")
        for attribute in attributes
    }


def scores(run: Run, program: Program) -> list[Score]:
    """The score of each training thread of each rank."""
    batches, truths = run
    batches = list(without(batches, program.without))
    merged = merged_in(batches)
    found = found_in(batches)
    expected = {**EXPECTED, **(DDP if program.ranks > 1 else {})}
    return [
        score(found.get(truth["pid"], Found()), truth, expected, merged[truth["pid"], truth["thread"]])
        for truth in truths
    ]


def merged_in(batches: Iterable[Batch]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """The start and end of each span that stands for many short regions, by pid and thread."""
    merged: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for resource in (resource for batch in batches for resource in batch.spans.resource_spans):
        pid = _attributes(resource.resource.attributes).get("process.pid", 0)
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            attributes = _attributes(span.attributes)
            if attributes.get("zernel.operators.parts", 1) > 1:
                merged[pid, attributes["thread.id"]].append((span.start_time_unix_nano, span.end_time_unix_nano))
    return merged


def score(found: Found, truth: Truth, expected: dict[str, set[str]], merged: Sequence[tuple[int, int]] = ()) -> Score:
    """Compares one thread's traces with its truth, at points spread evenly over the loop.

    Of a span that stands for many short regions only their sum is known. Within it the sums are compared.
    """
    pieces = sorted(found.pieces.get(truth["thread"]) or found.pieces.get(0, []), key=lambda piece: piece.start)
    begin, end = truth["loop"]
    marks = truth["marks"]
    points = begin + np.linspace(0, end - begin, SAMPLES).astype(np.int64)
    ours = _at(points, [(piece.start, piece.end) for piece in pieces])
    true = _at(points, [(start, until) for _, start, until in marks])
    within = _at(points, sorted(merged))
    wrong: Counter[tuple[str, str]] = Counter()
    for (mark, piece), count in _pairs(true, ours, (true >= 0) & (within < 0)):
        if piece < 0 or pieces[piece].phase not in expected[marks[mark][0]]:
            wrong[marks[mark][0], _name(pieces[piece]) if piece >= 0 else NONE] += count
    sums: dict[int, Counter[str]] = defaultdict(Counter)
    for (span, piece), count in _pairs(within, ours, within >= 0):
        sums[span][pieces[piece].phase if piece >= 0 else NONE] += count
    for (span, mark), count in _pairs(within, true, (within >= 0) & (true >= 0)):
        (phase,) = expected[marks[mark][0]]
        covered = min(count, sums[span][phase])
        sums[span][phase] -= covered
        wrong[marks[mark][0], MERGED] += count - covered
    seconds = (end - begin) / SAMPLES / 1e9
    own = (0, truth["thread"])
    steps = [one for start, _, one in found.steps if begin <= start < end and one.get("thread.id", 0) in own]
    return Score(
        1 - wrong.total() / max(int((true >= 0).sum()), 1),
        {pair: count * seconds for pair, count in wrong.most_common() if count},
        (truth["steps"], sum(step["zernel.step.kind"] in ("training", "accumulation") for step in steps)),
        Counter(step.get("zernel.step.boundary", "") for step in steps),
        Counter(step["zernel.step.kind"] for step in steps),
        found.verdict,
        truth["versions"],
    )


def _pairs(
    left: NDArray[np.int64], right: NDArray[np.int64], chosen: NDArray[np.bool_]
) -> Iterable[tuple[tuple[int, int], int]]:
    """The pairs at the chosen points, with the number of points of each."""
    return Counter(zip(left[chosen].tolist(), right[chosen].tolist(), strict=True)).items()


def _name(piece: Piece) -> str:
    return f"{piece.phase} ({'/'.join(filter(None, (piece.name, piece.detail)))})"


def _at(points: NDArray[np.int64], spans: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """The index of the span around each point, or -1. Spans are in order and do not overlap."""
    if not spans:
        return np.full(points.shape, -1, np.int64)
    starts, ends = np.array(spans, np.int64).T
    found = np.searchsorted(starts, points, "right") - 1
    return np.where((found >= 0) & (points < ends[found]), found, -1)


def lines(name: str, found: Iterable[Score], floor: float) -> Iterator[str]:
    """The result of a program as text, with the seconds of each confusion."""
    for one in found:
        steps = f"steps {one.steps[1]} of {one.steps[0]}"
        verdict = "ok" if one.agreement >= floor else f"BELOW {floor:.1%}"
        kinds = f"{dict(one.kinds)} by {dict(one.boundaries)}"
        yield f"{name}: {one.agreement:.2%} {verdict}, {steps} {kinds}, {one.verdict}"
        for (true, wrong), seconds in one.confused.items():
            if seconds < _SHOWN_S:
                continue
            yield f"    {seconds:8.3f} s of {true:<12} found as {wrong}"
