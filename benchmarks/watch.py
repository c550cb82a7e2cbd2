"""The terminal view: CPU time of an update with 64 changing ranks, from the bytes of the feed to the terminal's."""

import json
import time
from typing import Any

from benchmarks import BenchmarkRow
from otel_zernel_commands.watch.screens import FeedStatus, WatchView, draw
from otel_zernel_commands.watch.sources.live_stream import EventParser
from otel_zernel_commands.watch.styled import Surface
from otel_zernel_commands.watch.terminal import LineWriter, styles_for
from otel_zernel_libraries.serving.api.live import apply_delta
from tests.commands.watch.made_states import NOW, job_state, rank_id

RANKS = 64
UPDATES = 200
_MOST_MS = 10.0
"""1 % of a core at one update a second."""
_ENVIRON = {"TERM": "xterm-256color"}


def run() -> list[BenchmarkRow]:
    """Measures the two parts of an update."""
    state = job_state(RANKS)
    events = [_event(number) for number in range(UPDATES)]
    reading = drawing = 0.0
    writer = LineWriter(-1, styles_for(_ENVIRON, is_coloured=True))
    parser, view, written = EventParser(), WatchView(), 0
    for number, data in enumerate(events):
        started = time.process_time()
        for event in parser.feed(data):
            apply_delta(state, json.loads(event.data))
        read = time.process_time()
        drawn = draw(state, view, FeedStatus("localhost:9095", now_ms=NOW + number * 1000), Surface(160, 90))
        written += len(writer.update(drawn.lines).encode())
        reading += read - started
        drawing += time.process_time() - read
    total = (reading + drawing) / UPDATES * 1000
    return [
        BenchmarkRow(
            "watch: CPU of an update, 64 changing ranks",
            f"{total:.1f} ms",
            "at most 10 ms: 1 % of a core at 1 a second",
            total <= _MOST_MS,
        ),
        BenchmarkRow(
            "watch: reading the delta / drawing",
            f"{reading / UPDATES * 1000:.1f} / {drawing / UPDATES * 1000:.1f} ms",
        ),
        BenchmarkRow("watch: bytes to the terminal in an update", f"{written / UPDATES / 1024:.0f} KiB"),
    ]


def _event(number: int) -> bytes:
    """A delta in which each rank has new values and a step."""
    changes: list[Any] = []
    rows = {}
    for rank in range(RANKS):
        path = ["ranks", rank_id(rank)]
        lasted = 0.45 + (number * 7 + rank) % 13 / 100
        parts = [0.03, 0.23, lasted - 0.29, 0.03, 0.0]
        changes += [
            [[*path, "phase"], ("data_loading", "gpu_compute")[(number + rank) % 2]],
            [[*path, "step"], {"p50": lasted, "p99": lasted * 1.3, "last": lasted}],
            [[*path, "step_rate"], 1 / lasted],
            [[*path, "steps"], 2000 + number],
            [[*path, "lateness"], lasted / 100],
            [[*path, "seen"], int(NOW) + number * 1000],
            [[*path, "shares"], dict(zip(("data_loading", "gpu_compute", "nccl_collective"), parts, strict=False))],
            [["gpus", f"GPU-{rank:04}", "power"], 600 + (number + rank) % 50],
        ]
        rows[rank_id(rank)] = [[2000 + number, NOW + number * 1000, lasted, parts, 0]] * 2
    append = {"timeline": rows, "shares": {"llama": [[NOW, [0.1, 0.5, 0.3, 0.1, 0.0]]]}}
    delta = {"seq": 8 + number, "time": int(NOW) + number * 1000, "set": changes, "append": append}
    return f"id: {number}\nevent: delta\ndata: {json.dumps(delta)}\n\n".encode()
