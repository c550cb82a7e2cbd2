"""Writes docs/kernels.md: the results on each kernel."""

import json
import os
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.kernels.campaign import Result
from tests.kernels.catalogue import KERNELS, Kernel
from tests.receivers.ebpf.watching import best_mode

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "kernels.json"
PAGE = DOCS / "kernels.md"

_HEAD = """# Kernels

`make kernels` boots Debian's kernels in an emulator, loads every variant of the BPF objects there and runs the ebpf
receiver's tests. This page is made of its results ([kernels.json](kernels.json)).

`ns per call` is the time that a probe adds to a call: compare it within a row only. Tests are skipped if they need
PyTorch, or a mode that the kernel does not have. `boots` is more than 1 if the emulated machine stood still and was
booted again.

| kernel | architecture | modes that work | not counted | tests passed | failed | skipped | ns per call | boots | date |
|---|---|---|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A stored result with its date."""

    result: Result
    date: str


def store(result: Result) -> None:
    """Stores the result, instead of an earlier one of the same kernel, and writes the page."""
    found = {
        **stored_results(),
        result.kernel.name: StoredResult(_without_paths(result), f"{datetime.now(UTC):%Y-%m-%d}"),
    }
    ordered = [found[kernel.name] for kernel in (*KERNELS, here()) if kernel.name in found]
    RESULTS.write_text(json.dumps([asdict(one) for one in ordered], indent=1) + "\n")
    PAGE.write_text(page())


def here() -> Kernel:
    """The kernel of this machine, which runs without an emulator."""
    return Kernel("this machine", "x86_64" if os.uname().machine == "x86_64" else "aarch64", "", best_mode())


def page() -> str:
    """The text of docs/kernels.md, from the stored results."""
    return _HEAD + "".join(map(_row, stored_results().values()))


def _without_paths(result: Result) -> Result:
    """Removes the parts that are specific to this machine: paths and processes in the output of doctor and libbpf."""
    loads = {name: {**load, **_first_line(load)} for name, load in result.loads.items()}
    return replace(result, loads=loads, doctor=result.doctor if result.kernel.mode is None else "")


def _first_line(load: dict[str, Any]) -> dict[str, str]:
    return {"error": load["error"].partition("\n")[0]} if "error" in load else {}


def _row(stored: StoredResult) -> str:
    result = stored.result
    working = {name: load for name, load in result.loads.items() if "error" not in load}
    not_counted = sorted({one for load in working.values() for one in load["unseen"]})
    cells: tuple[object, ...] = (
        result.release,
        result.kernel.architecture,
        ", ".join(name.replace("/", " by ") for name in working) or "none",
        ", ".join(not_counted) or ("" if working else "all"),
        *map(result.count, ("passed", "failed", "skipped")),
        ", ".join(f"{name.partition('/')[0]} {load['call_ns']:,}" for name, load in working.items()),
        result.boots,
        stored.date,
    )
    return f"| {' | '.join(map(str, cells))} |\n"


def stored_results() -> dict[str, StoredResult]:
    """The stored results by kernel name."""
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    results = [
        (Result(**{**one["result"], "kernel": Kernel(**one["result"]["kernel"])}), one["date"]) for one in stored
    ]
    return {result.kernel.name: StoredResult(result, date) for result, date in results}
