"""One run of a program: its options and its record. It needs no framework."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.frameworks.jobs.recording.slowness import Slowness, busy
from tests.frameworks.jobs.recording.truth import Recorder


@dataclass
class Run:
    """What a program gets."""

    truth: Recorder
    slow: str
    """The slow part of each step: `loader`, `forward`, `optimizer`, `rank` or none."""
    slowness: Slowness = field(default_factory=Slowness)

    def delay(self, part: str, spend: Callable[[float], None] = busy) -> None:
        """Spends the time (s) of the slow part, if this is the slow part."""
        if part == self.slow:
            with self.slowness.part():
                spend(self.slowness.seconds)

    @property
    def go(self) -> Path:
        """The file that exists once the collector has found the process."""
        return self.truth.folder / "go"
