"""The cells of nvidia-smi's CSV: numbers with units, words, and cells without a value. And messages between rows."""

import math
import re
from collections.abc import Callable, Mapping

from otel_zernel.formats.dcgm import MHZ, MIB, PERCENT

UNITS = {
    "": 1.0,
    "%": PERCENT,
    "B": 1.0,
    "KiB": 2.0**10,
    "MiB": MIB,
    "GiB": 2.0**30,
    "Hz": 1.0,
    "kHz": 1e3,
    "MHz": MHZ,
    "GHz": 1e9,
    "W": 1.0,
    "mW": 1e-3,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "C": 1.0,
    "bank(s)": 1.0,
}
"""The factors to base units."""
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z%()]*)", re.ASCII)
_MISSING = frozenset({"", "-", "N/A", "Requested functionality has been deprecated"})


def is_missing(cell: str) -> bool:
    """Whether the driver has no value: `[N/A]`, `[Not Supported]`, `[Unknown Error]`, and others in brackets."""
    return cell in _MISSING or (cell.startswith("[") and cell.endswith("]"))


def quantity(unit: str) -> Callable[[str], float]:
    """Reads a number with or without a unit. The result is in `unit`, in which nvidia-smi prints the field."""

    def read(cell: str) -> float:
        found = None if is_missing(cell) else _QUANTITY.fullmatch(cell)
        if not found:
            return _no_value(cell)
        number, given = float(found[1]), found[2]
        if given in ("", unit):
            return number
        if given not in UNITS:
            raise ValueError(f"not a unit of nvidia-smi: {given}")
        return number * UNITS[given] / UNITS[unit]

    return read


def _no_value(cell: str) -> float:
    if is_missing(cell):
        return math.nan
    raise ValueError(f"not a value of nvidia-smi: {cell[:40]!r}")


def one_of(words: Mapping[str, float]) -> Callable[[str], float]:
    """Reads one of these words."""

    def read(cell: str) -> float:
        number = words.get(cell.lower())
        return _no_value(cell) if number is None else number

    return read


FLAG = one_of({"enabled": 1.0, "active": 1.0, "yes": 1.0, "disabled": 0.0, "not active": 0.0, "no": 0.0})
ACTION = one_of({"none": 0.0, "reset": 1.0, "reboot": 2.0, "drain p2p": 3.0, "drain and reset": 4.0})
"""The numbers of nvmlDeviceGpuRecoveryAction_t in nvml.h."""


def is_state(word: str, words: tuple[str, ...]) -> Callable[[str], float]:
    """1 if the cell is `word`, 0 if it is another one of `words`."""
    return one_of({one: float(one == word) for one in words})


def performance_state(cell: str) -> float:
    return float(cell[1:]) if re.fullmatch(r"P\d+", cell, re.ASCII) else _no_value(cell)


def bit_of_mask(bit: int) -> Callable[[str], float]:
    def read(cell: str) -> float:
        return float(bool(int(cell, 16) & bit)) if re.fullmatch(r"0x[0-9a-fA-F]+", cell) else _no_value(cell)

    return read


_MESSAGE = re.compile(
    r"\s*(?:unable to|failed to|nvidia-smi has failed|no devices|no gpus|warning|error|timeout"
    r"|gpu is lost|unknown error|gpu reset|invalid combination|field .* is not|terminating)",
    re.IGNORECASE,
)


def is_message(line: str) -> bool:
    """Whether the line is a message of the driver or of nvidia-smi, which it prints between the rows."""
    return bool(_MESSAGE.match(line))
