"""A recorded run: a live state as JSON, or a recording of the file exporter."""

import json
import time
from pathlib import Path
from typing import Any, Final

from otel_zernel.errors import CannotStart
from otel_zernel.text import printable
from otel_zernel_commands.watch.reading import as_number
from otel_zernel_commands.watch.sources.in_process import InProcessSource, live_tree
from otel_zernel_commands.watch.sources.live_stream import OtherSchema, checked_state
from otel_zernel_commands.watch.sources.watch_source import WatchSource
from otel_zernel_libraries.recordings import damage_of, has_results, replay_receiver

_MOST_BYTES: Final = 64 << 20
"""Bytes of a state. Larger files are recordings."""


class StateFileSource(WatchSource):
    """Shows one state, which does not change."""

    def __init__(self, path: Path, state: dict[str, Any]) -> None:
        self._time = as_number(state.get("time")) or 0.0
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(min(max(self._time / 1000, 0), 4e9)))
        super().__init__(f"{path.name}, state of {when}")
        self._state = state

    async def run(self, *, once: bool = False) -> None:
        """There is nothing to follow."""

    def state(self) -> dict[str, Any]:
        return self._state

    def now_ms(self) -> float:
        return self._time


class RecordingSource(InProcessSource):
    """Replays a recording of the file exporter."""

    def __init__(self, path: Path, speed: float) -> None:
        """`speed`: 1 is the recorded pace; 0 is as fast as possible."""
        traces = {"sample": 1, "merge_rest": True}
        phases = {"interval": "1s", "window": "30s", "pace": speed, "traces": traces}
        processors = {} if has_results(path) else {"phases": phases}
        super().__init__(f"{path.name}, replayed", live_tree(replay_receiver(path, speed), processors), ends=True)

    def now_ms(self) -> float:
        """The time of the newest data: the replay has a pace of its own."""
        state = self.state() or {}
        seen = [as_number(one.get("seen")) or 0.0 for name in ("ranks", "gpus") for one in state.get(name, {}).values()]
        return max(seen, default=super().now_ms())

    async def run(self, *, once: bool = False) -> None:
        await super().run(once=once)
        self.title = self.title.replace("replayed", "replay has ended")


def recording(path: Path, speed: float) -> WatchSource:
    """The source for a file. Raises `CannotStart` if it cannot be read."""
    try:
        with path.open("rb") as file:
            beginning = file.read(_MOST_BYTES if path.stat().st_size <= _MOST_BYTES else 0)
    except OSError as error:
        raise CannotStart(f"cannot read {printable(str(path))}: {error.strerror}") from error
    try:
        return StateFileSource(path, checked_state(json.loads(beginning), printable(str(path)), "save the state again"))
    except OtherSchema as error:
        raise CannotStart(str(error)) from error
    except (ValueError, RecursionError):
        if damage := damage_of(path):
            shown = printable(str(path))
            raise CannotStart(
                f"{shown} is neither a recording of the file exporter nor a saved state: {damage}"
            ) from None
        return RecordingSource(path, speed)
