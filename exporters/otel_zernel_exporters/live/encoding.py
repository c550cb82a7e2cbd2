"""The state and its deltas as JSON and as server-sent events."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from otel_zernel.api.answers import json_bytes
from otel_zernel_exporters.live.live_state import LiveState

_PIECE: Final = 16
"""Objects of a piece, about a millisecond of work."""


def state_pieces(state: LiveState) -> Iterator[bytes]:
    """The JSON of the state in pieces. The state must not change meanwhile."""
    yield json_bytes(state.head())[:-1]
    for name, table in state.tables().items():
        yield b',"%s":' % name.encode()
        yield from _object(table.items())
    yield b',"timeline":'
    ranks = list(state.tables()["ranks"])
    yield from _object((rank, rows) for rank in ranks if (rows := state.rows_of(rank)))
    yield b"," + json_bytes(state.tail())[1:]


def delta_event(delta: Mapping[str, Any]) -> Iterator[bytes]:
    """The event of a delta in pieces of JSON."""
    yield f"id: {delta['seq']}\nevent: delta\ndata: ".encode()
    changes = delta.get("set", ())
    rest = {name: value for name, value in delta.items() if name != "set"}
    yield json_bytes(rest)[:-1]
    for at in range(0, len(changes), 20 * _PIECE):
        piece = json_bytes(changes[at : at + 20 * _PIECE])
        yield (b"," if at else b',"set":[') + piece[1:-1]
    yield b"]}\n\n" if changes else b"}\n\n"


def _object(items: Any) -> Iterator[bytes]:
    """A JSON object, a few members at a time."""
    before, held = b"{", {}
    for key, value in items:
        held[key] = value
        if len(held) == _PIECE:
            yield before + json_bytes(held)[1:-1]
            before, held = b",", {}
    if held:
        yield before + json_bytes(held)[1:-1] + b"}"
    else:
        yield b"{}" if before == b"{" else b"}"
