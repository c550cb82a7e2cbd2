"""The source that a word on the command line names; without a word, this machine, without any configuration."""

import json
import os
import re
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from otel_zernel.component import Finding
from otel_zernel.errors import CannotStart
from otel_zernel.registry import Registry
from otel_zernel.text import printable, quoted, shown_url
from otel_zernel_commands.watch.reading import as_number
from otel_zernel_commands.watch.sources.in_process import InProcessSource, live_tree
from otel_zernel_commands.watch.sources.live_stream import LiveStreamSource, OtherSchema, checked_state
from otel_zernel_commands.watch.sources.seed_feed import SeedFeedSource
from otel_zernel_commands.watch.sources.watch_source import WatchSource
from otel_zernel_libraries.job_choice import JobChoice
from otel_zernel_libraries.recordings import damage_of, has_results, replay_receiver
from otel_zernel_libraries.training.chosen_jobs import CHOSEN, choosing

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
        seen = [
            as_number(item.get("seen")) or 0.0 for name in ("ranks", "gpus") for item in state.get(name, {}).values()
        ]
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


_NEEDED = ("attaching", "kernel", "libbpf", "BTF")
"""The findings of ebpf without which no process can be watched."""


class ThisMachineSource(InProcessSource):
    """Runs `ebpf`, `nvml`, `phases` and `live` as examples/live.yaml does."""

    def __init__(self, interval: float, choice: JobChoice) -> None:
        """`interval`: seconds between two updates of the screen."""
        self._choosing = {} if choice.is_all else {CHOSEN: choosing(choice)}
        super().__init__("this machine", _tree(interval, self._choosing), ends=False, processors=self._choosing)
        self._interval = interval

    async def run(self, *, once: bool = False) -> None:
        installed = Registry.installed()
        require_probes(installed.load("receivers", "ebpf").examine(), os.geteuid())
        missing = [finding.text for finding in installed.load("receivers", "nvml").examine() if finding.ok is False]
        if missing:
            self._tree = _tree(self._interval, self._choosing, with_gpus=False)
            self.gpu_notes = tuple(f"No data of GPUs: {text}" for text in missing)
        await super().run(once=once)


def require_probes(findings: Iterable[Finding], user: int) -> None:
    """Raises `CannotStart` with one sentence if processes cannot be watched. `user` is the effective user id."""
    missing = next((finding for finding in findings if finding.ok is False and finding.topic in _NEEDED), None)
    if missing is None:
        return
    if user != 0:
        program = Path(sys.argv[0]).absolute()
        raise CannotStart(
            f"watching this machine's processes needs root: run `sudo {program} watch`, "
            "or name the address of a collector, such as http://localhost:9095"
        )
    raise CannotStart(f"the processes of this machine cannot be watched: {missing.text}")


def _tree(interval: float, before: Iterable[str], *, with_gpus: bool = True) -> dict[str, Any]:
    receivers = {"ebpf": {"interval": f"{max(min(interval, 0.5), 0.25):g}s", "rescan_interval": "2s", "stacks": True}}
    if with_gpus:
        receivers["nvml"] = {"collection_interval": "1s", "initial_delay": "0s"}
    phases = {
        "interval": "1s",
        "window": "30s",
        "traces": {"sample": 1, "slowest": 0, "max_steps": 200, "merge_rest": True, "long_sync": "1h"},
    }
    return live_tree(receivers, {**{name: {} for name in before}, "phases": phases})


_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+):\d{1,5}")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How to reach a source."""

    token_file: Path | None = None
    ca_file: Path | None = None
    speed: float = 1.0
    """The pace of a recording."""
    interval: float = 1.0
    choice: JobChoice = field(default_factory=JobChoice)
    """Of the jobs of this machine."""


def source_of(word: str | None, options: SourceOptions) -> WatchSource:
    """The source that a word names; without one, this machine. Raises `CannotStart`."""
    if word is None:
        return ThisMachineSource(options.interval, options.choice)
    if word.startswith(("http://", "https://")):
        return LiveStreamSource(word, options.token_file, options.ca_file)
    if word.startswith(("ws://", "wss://")):
        return SeedFeedSource(word, options.token_file)
    path = Path(word)
    if path.is_file():
        return recording(path, options.speed)
    if _HOST_AND_PORT.fullmatch(word):
        return LiveStreamSource(f"http://{word}", options.token_file, options.ca_file)
    raise CannotStart(
        f"{quoted(shown_url(word))} is neither an address nor a file; "
        "use http://HOST:9095, ws://HOST:9092, or the path of a recording"
    )
