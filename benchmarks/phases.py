"""The phases of real training loops beside what the loops themselves say they did.

Each scenario of `_truth.py` is a process of its own. Its spans come from the live eBPF receiver or, where there is
none, from a recording of a real run. What the phases processor makes of them is read from its traces and held against
the truth: which phase it gives to points spread evenly over the loop, and where each interval begins and ends.
"""

import asyncio
import gzip
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks import Row
from benchmarks._scenarios import SCENARIOS, Scenario
from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.component import Receiver
from otel_zernel.otlp_json import parse_spans_json
from otel_zernel.registry import Registry
from otel_zernel.testing import Downstream, make_context
from otel_zernel_processors.phases import PhasesProcessor

SAMPLES = 200_000
BOUNDARY_US = 150
SETTLE_S = 3.0
"""How long the receiver may take to emit the last spans."""
ROOT = Path(__file__).parent.parent
RECORDED = ROOT / "tests/processors/phases/recorded"

PHASES_OF = {
    "data": {"data_loading"},
    "end of data": {"data_loading"},
    "forward": {"gpu_compute"},
    "backward": {"gpu_compute"},
    "clip": {"gpu_compute"},
    "evaluate": {"gpu_compute"},
    "collective": {"nccl_collective"},
    "optimizer": {"optimizer_step"},
    "zero_grad": {"optimizer_step"},
    "checkpoint": {"unknown"},
}
"""What the processor should say where the loop says this."""
DDP = {**PHASES_OF, "backward": {"gpu_compute", "nccl_collective"}}
"""Within DDP's backward pass the loop cannot tell waiting from computing."""
EDGES = {
    "data": {"data_loading"},
    "backward": {"backward", "collective"},
    "optimizer": {"optimizer"},
    "zero_grad": {"zero_grad"},
}
"""The intervals whose edges are compared: the loop's name, and what ours consist of (DDP waits within backward)."""

Mark = tuple[str, int, int]
"""What the loop says it did, and from when to when (ns)."""
Truth = dict[str, Any]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Piece:
    """A stretch of a step, as the traces show it: [start, end) in ns."""

    start: int
    end: int
    what: str
    phase: str


@dataclass(frozen=True)
class Score:
    """How far the phases of one process are the true ones."""

    agreement: float
    """Share of the points that the loop speaks of, 0 to 1."""
    edges_us: dict[str, list[float]]
    """How much later than in truth each edge is seen, by kind of edge."""
    gap_ns: int
    """How far any step's phases are from adding up to it."""


def phases_of(batches: Iterable[Batch]) -> dict[int, tuple[list[Piece], int]]:
    """For each process what every step consisted of, in order, and the largest gap (ns) within a step."""
    settings = {"traces": {"sample": 1, "max_steps": 1_000_000}}
    config = PhasesProcessor.Config.model_validate(settings)
    processor = PhasesProcessor(config, make_context("processors", "phases"))
    made = [out for batch in batches for out in processor.process(batch)]
    pieces: dict[int, list[Piece]] = defaultdict(list)
    lengths: dict[int, list[int]] = defaultdict(list)
    for batch in [*made, *processor.flush()]:
        for resource in batch.spans.resource_spans:
            pid = next(pair.value.int_value for pair in resource.resource.attributes if pair.key == "process.pid")
            steps: dict[bytes, int] = {}
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                lasted = span.end_time_unix_nano - span.start_time_unix_nano
                if not span.parent_span_id:
                    steps[span.span_id] = lasted
                elif span.parent_span_id in steps:
                    steps[span.parent_span_id] -= lasted
                    phase = next(pair.value.string_value for pair in span.attributes if pair.key == "zernel.phase")
                    pieces[pid].append(Piece(span.start_time_unix_nano, span.end_time_unix_nano, span.name, phase))
            lengths[pid] += map(abs, steps.values())
    return {pid: (sorted(some, key=lambda piece: piece.start), max(lengths[pid])) for pid, some in pieces.items()}


def score(pieces: Sequence[Piece], gap_ns: int, truth: Truth, expected: dict[str, set[str]]) -> Score:
    """Holds the pieces against the truth."""
    if not pieces:
        return Score(0.0, {}, gap_ns)
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
    return Score(float(np.mean(right)), dict(_edges(pieces, marks)), gap_ns)


def _at(points: Ints, spans: Sequence[tuple[int, int]]) -> Ints:
    """For each point the index of the span it lies in, or -1; spans in any order, without overlap."""
    order = sorted(range(len(spans)), key=lambda index: spans[index])
    starts, ends = (np.array([spans[index][side] for index in order], np.int64) for side in (0, 1))
    found = np.searchsorted(starts, points, "right") - 1
    inside = (found >= 0) & (points < ends[found])
    return np.where(inside, np.array(order, np.int64)[found], -1)


def _edges(pieces: Sequence[Piece], marks: Sequence[Mark]) -> Iterator[tuple[str, list[float]]]:
    """How many us later than in truth the interval that fits best begins and ends."""
    for name, whats in EDGES.items():
        ours = _joined(pieces, whats)
        true = [(start, end) for named, start, end in marks if named == name]
        pairs = [(min(ours, key=lambda one: abs(one[0] - s) + abs(one[1] - e)), s, e) for s, e in true if ours]
        if pairs:
            yield f"{name} begins", [(one[0] - start) / 1e3 for one, start, _ in pairs]
            yield f"{name} ends", [(one[1] - end) / 1e3 for one, _, end in pairs]


def _joined(pieces: Sequence[Piece], whats: set[str]) -> list[tuple[int, int]]:
    """Where pieces of these kinds follow each other without a gap."""
    joined: list[tuple[int, int]] = []
    for piece in pieces:
        if piece.what not in whats:
            continue
        if joined and joined[-1][1] == piece.start:
            joined[-1] = (joined[-1][0], piece.end)
        else:
            joined.append((piece.start, piece.end))
    return joined


def scores(batches: Iterable[Batch], truths: Sequence[Truth], scenario: Scenario) -> list[Score]:
    """The score of each rank."""
    expected = DDP if scenario.ranks > 1 and scenario.ddp else PHASES_OF
    made = phases_of(batches)
    nothing: tuple[list[Piece], int] = ([], 0)
    return [score(*made.get(truth["pid"], nothing), truth, expected) for truth in truths]


def bar(scenario: Scenario) -> float:
    """The agreement to be reached."""
    return 0.98 if scenario.workers else 0.99


def rows(name: str, found: list[Score], bar: float) -> Iterator[Row]:
    """The rows of a scenario."""
    agreement = min(one.agreement for one in found)
    yield Row(f"phases: {name}: agreement", f"{agreement:.2%}", f">= {bar:.0%}", agreement >= bar)


def rows_of_all(found: Sequence[Score]) -> Iterator[Row]:
    """The rows of the edges, and of how exactly phases add up, over all scenarios."""
    edges: dict[str, list[float]] = defaultdict(list)
    for one in found:
        for kind, late in one.edges_us.items():
            edges[kind] += late
    for kind, late in edges.items():
        middle, far = np.percentile(np.abs(late), [50, 99])
        value = f"p50 {middle:.0f} us, p99 {far:.0f} us"
        yield Row(f"phases: {kind}", value, f"p50 <= {BOUNDARY_US} us", bool(middle <= BOUNDARY_US))
    gap = max((one.gap_ns for one in found), default=0)
    yield Row("phases: short of their step by at most", f"{gap} ns", "<= 1000 ns", gap <= 1000)


class Source(Protocol):
    """Where the spans of a scenario come from."""

    def __call__(self, name: str) -> tuple[list[Batch], list[Truth]]:
        """The batches of spans, and the truth of each rank in the clock of the spans."""


def recorded(name: str) -> tuple[list[Batch], list[Truth]]:
    """A scenario as it was recorded: its spans, and the truth of each rank."""
    folder = RECORDED / name.replace(",", "").replace(" ", "_")
    lines = gzip.decompress((folder / "spans.jsonl.gz").read_bytes()).splitlines()
    truths = json.loads(gzip.decompress((folder / "truth.json.gz").read_bytes()))
    return [Batch(spans=parse_spans_json(line)) for line in lines], truths


def live(name: str) -> tuple[list[Batch], list[Truth]]:
    """A scenario run now, under the eBPF receiver."""
    return asyncio.run(_watch(name))


async def _watch(name: str) -> tuple[list[Batch], list[Truth]]:
    cls = Registry.installed().load("receivers", "ebpf")
    config = cls.Config.model_validate({"rescan_interval": "300ms"})
    receiver = cls(config, make_context("receivers", "ebpf", clock=SystemClock()))
    assert isinstance(receiver, Receiver)
    seen, offset = Downstream(), time.time_ns() - time.monotonic_ns()
    with tempfile.TemporaryDirectory() as folder:
        watching = asyncio.create_task(receiver.run(seen))
        out = Path(folder) / "truth.json"
        program = [sys.executable, "-m", "benchmarks._truth", name, str(out)]
        training = await asyncio.create_subprocess_exec(*program, cwd=ROOT, stderr=asyncio.subprocess.DEVNULL)
        await training.wait()
        await asyncio.sleep(SETTLE_S)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        truths = [json.loads(path.read_text()) for path in sorted(out.parent.glob("truth.json*"))]
    return seen.batches, [shifted(truth, offset) for truth in truths]


def shifted(truth: Truth, offset_ns: int) -> Truth:
    """The truth in Unix time, of which its own clock is `offset_ns` short."""
    marks = [(name, start + offset_ns, end + offset_ns) for name, start, end in truth["marks"]]
    return {**truth, "loop": [at + offset_ns for at in truth["loop"]], "marks": marks}


def source() -> tuple[str, Source]:
    """The live receiver where it can work, else the recordings."""
    if "ebpf" not in Registry.installed().aliases("receivers") or os.geteuid() != 0:
        return "recorded", recorded
    if importlib.util.find_spec("torch") is None:
        return "recorded", recorded
    return "live", live


def run() -> list[Row]:
    """The agreement of every scenario, then the edges."""
    made: list[Row] = []
    found: list[Score] = []
    name_of_source, spans_of = source()
    for name, scenario in SCENARIOS.items():
        some = scores(*spans_of(name), scenario)
        found += some
        made += rows(f"{name} ({name_of_source})", some, bar(scenario))
    return [*made, *rows_of_all(found)]
