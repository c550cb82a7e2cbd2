"""One run of a program: its options and its record. It needs no framework."""

from dataclasses import dataclass
from pathlib import Path

from tests.frameworks.jobs.recording.truth import Recorder

SLOWER_S = 0.12
"""The time that an injected slowness adds to each step."""


@dataclass
class Run:
    """What a program gets."""

    truth: Recorder
    slow: str
    """The part of each step that takes SLOWER_S longer: `loader`, `forward`, `optimizer`, `rank` or none."""

    @property
    def slower_data(self) -> float:
        """Seconds that each batch takes longer."""
        return SLOWER_S if self.slow == "loader" else 0.0

    @property
    def go(self) -> Path:
        """The file that exists once the collector has found the process."""
        return self.truth.folder / "go"
