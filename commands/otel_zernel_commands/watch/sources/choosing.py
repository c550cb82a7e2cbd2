"""Which source a word on the command line names."""

import re
from dataclasses import dataclass
from pathlib import Path

from otel_zernel.errors import CannotStart
from otel_zernel.text import quoted, shown_url
from otel_zernel_commands.watch.sources.live_stream import LiveStreamSource
from otel_zernel_commands.watch.sources.recording import recording
from otel_zernel_commands.watch.sources.seed_feed import SeedFeedSource
from otel_zernel_commands.watch.sources.this_machine import ThisMachineSource
from otel_zernel_commands.watch.sources.watch_source import WatchSource

_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+):\d{1,5}")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How to reach a source."""

    token_file: Path | None = None
    ca_file: Path | None = None
    speed: float = 1.0
    """The pace of a recording."""
    interval: float = 1.0


def source_of(word: str | None, options: SourceOptions) -> WatchSource:
    """The source that a word names; without one, this machine. Raises `CannotStart`."""
    if word is None:
        return ThisMachineSource(options.interval)
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
