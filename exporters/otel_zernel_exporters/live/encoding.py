"""The state and its deltas as JSON and as server-sent events."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from otel_zernel_exporters.live.live_state import LiveState
from otel_zernel_exporters.live.state import BOUNDS
from otel_zernel_libraries.serving.api.answers import json_bytes

_OBJECTS: Final = 16
"""GPUs, ranks or jobs of a piece, about a millisecond of work."""
_TIMELINES: Final = 2
"""Ranks of a piece of the timeline: 400 steps, about a millisecond of work."""
_CHANGES: Final = 300
"""Changed values of a piece, about a millisecond of work."""


def state_pieces(state: LiveState) -> Iterator[bytes]:
    """The JSON of the state in pieces. The state must not change meanwhile."""
    yield json_bytes(state.head())[:-1]
    for name, table in state.tables().items():
        yield b',"%s":' % name.encode()
        yield from _object(table.items(), _OBJECTS)
    yield b',"timeline":'
    ranks = list(state.tables()["ranks"])
    timelines = ((rank, rows) for rank in ranks if (rows := state.rows_of(rank)))
    yield from _object(timelines, _TIMELINES)
    yield b',"heat":{"bounds":%s,"columns":' % json_bytes(BOUNDS)
    yield from _columns(state.heat())
    yield b'},"shares":'
    yield from _columns(state.shares())
    yield b"}"


def delta_event(delta: Mapping[str, Any]) -> Iterator[bytes]:
    """The event of a delta in pieces of JSON."""
    yield f"id: {delta['seq']}\nevent: delta\ndata: ".encode()
    changes = delta.get("set", ())
    rest = {name: value for name, value in delta.items() if name != "set"}
    yield json_bytes(rest)[:-1]
    for at in range(0, len(changes), _CHANGES):
        piece = json_bytes(changes[at : at + _CHANGES])
        yield (b"," if at else b',"set":[') + piece[1:-1]
    yield b"]}\n\n" if changes else b"}\n\n"


def _columns(jobs: Iterable[tuple[str, bytes]]) -> Iterator[bytes]:
    """A JSON object of the columns of each job, a job at a time."""
    before = b"{"
    for id_, columns in jobs:
        yield b"%s%s:%s" % (before, json_bytes(id_), columns)
        before = b","
    yield b"}" if before == b"," else b"{}"


def _object(items: Iterable[tuple[str, Any]], size: int) -> Iterator[bytes]:
    """A JSON object, `size` members at a time."""
    before, held = b"{", dict[str, Any]()
    for key, value in items:
        held[key] = value
        if len(held) == size:
            yield before + json_bytes(held)[1:-1]
            before, held = b",", dict[str, Any]()
    if held:
        yield before + json_bytes(held)[1:-1] + b"}"
    else:
        yield b"{}" if before == b"{" else b"}"
