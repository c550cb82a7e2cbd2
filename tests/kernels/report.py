"""docs/kernels.md: what ran on which kernel."""

import json
import os
import re
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
receiver's tests. This page is generated from its results, which are in [kernels.json](kernels.json).

An emulator's times mean nothing beside those of a real processor: compare ns within a row only. Tests are skipped
where they need a mode that the kernel does not have, or PyTorch. A row with some 20 tests is a run of the short list,
which `make test` uses too. [bpf/README.md](../bpf/README.md) says which kernel
needs which variant and why.

| kernel | architecture | modes that work | not seen | tests passed | failed | skipped | ns per call | run on |
|---|---|---|---|---|---|---|---|---|
"""
_NOTES = """
## What the receiver says on Linux {release}

It is older than the oldest kernel that can work. `otel-zernel doctor` prints there:

```
{doctor}
```
"""


@dataclass(frozen=True, slots=True)
class Kept:
    """A result, and the day of it."""

    result: Result
    date: str


def keep(result: Result) -> None:
    """Adds the result to those that are kept, in place of an earlier one of the same kernel, and writes the page."""
    kept = {**kept_results(), result.kernel.name: Kept(_without_paths(result), f"{datetime.now(UTC):%Y-%m-%d}")}
    ordered = [kept[kernel.name] for kernel in (*KERNELS, here()) if kernel.name in kept]
    RESULTS.write_text(json.dumps([asdict(one) for one in ordered], indent=1) + "\n")
    PAGE.write_text(page())


def here() -> Kernel:
    """The kernel of this machine, which needs no emulator."""
    return Kernel("this machine", "x86_64" if os.uname().machine == "x86_64" else "aarch64", "", best_mode())


def page() -> str:
    """The text of docs/kernels.md by the results that are kept."""
    kept = kept_results()
    too_old = next((one.result for one in kept.values() if one.result.kernel.mode is None), None)
    notes = _NOTES.format(release=too_old.release, doctor=_findings(too_old.doctor)) if too_old else ""
    return _HEAD + "".join(map(_row, kept.values())) + notes


def _without_paths(result: Result) -> Result:
    """Without what only this machine has: the files and processes that doctor and libbpf name."""
    loads = {name: {**one, **_first_line(one)} for name, one in result.loads.items()}
    return replace(result, loads=loads, doctor=result.doctor if result.kernel.mode is None else "")


def _first_line(load: dict[str, Any]) -> dict[str, str]:
    return {"error": load["error"].partition("\n")[0]} if "error" in load else {}


def _row(kept: Kept) -> str:
    result = kept.result
    working = {name: load for name, load in result.loads.items() if "error" not in load}
    unseen = sorted({one for load in working.values() for one in load["unseen"]})
    cells: tuple[object, ...] = (
        result.release,
        result.kernel.architecture,
        ", ".join(name.replace("/", " by ") for name in working) or "none",
        ", ".join(unseen) or ("" if working else "all"),
        *map(result.count, ("passed", "failed", "skipped")),
        ", ".join(f"{name.partition('/')[0]} {load['call_ns']:,}" for name, load in working.items()),
        kept.date,
    )
    return f"| {' | '.join(map(str, cells))} |\n"


def _findings(doctor: str) -> str:
    """What doctor says of the ebpf receiver."""
    found = re.search(r"receivers::ebpf\n(.*?)(?=^\S|\Z)", doctor, re.DOTALL | re.MULTILINE)
    return found[1].rstrip() if found else doctor


def kept_results() -> dict[str, Kept]:
    """The results that are kept, by the names of their kernels."""
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    results = [
        (Result(**{**one["result"], "kernel": Kernel(**one["result"]["kernel"])}), one["date"]) for one in stored
    ]
    return {result.kernel.name: Kept(result, date) for result, date in results}
