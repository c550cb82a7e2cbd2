"""The phases of real training loops beside what the loops themselves say they did.

Each scenario of `_truth.py` runs as a process of its own. A source gives the spans that were seen of it: the live eBPF
receiver, or a recording (`python -m benchmarks.phases FOLDER`: a folder a scenario, with spans.jsonl, the clock's
offset and the truth). What the phases processor makes of them is read from its traces and held against the truth: which
phase it gives to points spread evenly over the loop, and where each interval begins and ends.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import Row
from otel_zernel.batch import Batch
from otel_zernel.otlp_json import parse_spans_json
from otel_zernel.testing import make_context
from otel_zernel_processors.phases import PhasesProcessor

SAMPLES = 200_000
BOUNDARY_US = 150

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
EDGES = {"data": "data_loading", "backward": "backward", "optimizer": "optimizer", "zero_grad": "zero_grad"}
"""The intervals whose edges are compared: the loop's name, and ours."""

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


def score(pieces: Sequence[Piece], gap_ns: int, truth: Truth, offset_ns: int, expected: dict[str, set[str]]) -> Score:
    """Holds the pieces against the truth, whose clock is `offset_ns` behind."""
    marks = [(name, start + offset_ns, end + offset_ns) for name, start, end in truth["marks"]]
    begin, end = (at + offset_ns for at in truth["loop"])
    points = np.linspace(begin, end, SAMPLES).astype(np.int64)
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


def _edges(pieces: Sequence[Piece], marks: Sequence[tuple[str, int, int]]) -> Iterator[tuple[str, list[float]]]:
    """How many us later than in truth the piece that fits best begins and ends."""
    for name, what in EDGES.items():
        ours = [piece for piece in pieces if piece.what == what]
        true = [(start, end) for named, start, end in marks if named == name]
        pairs = [(min(ours, key=lambda p: abs(p.start - s) + abs(p.end - e)), s, e) for s, e in true if ours]
        if pairs:
            yield f"{what} begins", [(piece.start - start) / 1e3 for piece, start, _ in pairs]
            yield f"{what} ends", [(piece.end - end) / 1e3 for piece, _, end in pairs]


def recorded(folder: Path) -> tuple[list[Batch], list[Truth], int]:
    """A recorded scenario: its spans, the truth of each rank, and the offset of the truth's clock in ns."""
    batches = [Batch(spans=parse_spans_json(line)) for line in (folder / "spans.jsonl").read_text().splitlines()]
    truths = [json.loads(path.read_text()) for path in sorted(folder.glob("truth.json*"))]
    return batches, truths, int((folder / "offset").read_text())


def scores(batches: list[Batch], truths: list[Truth], offset_ns: int, ddp: bool) -> list[Score]:
    """The score of each rank."""
    made = phases_of(batches)
    return [score(*made[truth["pid"]], truth, offset_ns, DDP if ddp else PHASES_OF) for truth in truths]


def rows(name: str, found: list[Score], bar: float) -> Iterator[Row]:
    """The rows of a scenario."""
    agreement = min(one.agreement for one in found)
    yield Row(f"phases: {name}: agreement", f"{agreement:.2%}", f">= {bar:.0%}", agreement >= bar)
    gap = max(one.gap_ns for one in found)
    yield Row(f"phases: {name}: phases short of the step by", f"{gap} ns", "<= 1000 ns", gap <= 1000)


def edge_rows(found: Iterable[Score]) -> Iterator[Row]:
    """The rows of the edges, over all scenarios."""
    edges: dict[str, list[float]] = defaultdict(list)
    for one in found:
        for kind, late in one.edges_us.items():
            edges[kind] += late
    for kind, late in edges.items():
        middle, far = np.percentile(np.abs(late), [50, 99])
        value = f"p50 {middle:.0f} us, p99 {far:.0f} us"
        yield Row(f"phases: {kind}", value, f"p50 <= {BOUNDARY_US} us", bool(middle <= BOUNDARY_US))


def main(root: Path) -> None:
    """Prints the scores of recordings."""
    found: list[Score] = []
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        name = folder.name
        some = scores(*recorded(folder), ddp="DDP" in name)
        found += some
        for row in rows(name, some, 0.98 if "workers" in name else 0.99):
            print(f"{row.name:<70} {row.value:>12} {row.bar} {row.ok}")
    for row in edge_rows(found):
        print(f"{row.name:<70} {row.value:>12} {row.bar} {row.ok}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
