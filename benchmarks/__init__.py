"""What a claim in the README rests on: ratios, each measured within one run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """One measured figure, the bar it has to pass, and if it did (None: reported only)."""

    name: str
    value: str
    bar: str = ""
    ok: bool | None = None
