"""Benchmarks: the measurements behind claims in the documents. Ratios are measured within one run."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """One measured value, its target, and whether it meets it (None: no target)."""

    name: str
    value: str
    bar: str = ""
    ok: bool | None = None
