"""The cells of nvidia-smi's CSV: numbers with units, words, and cells without a value. And messages between rows."""

import math
import re
from collections.abc import Callable, Mapping

from otel_zernel_libraries.gpu_names.dcgm import MHZ, MIB, PERCENT

UNITS: Mapping[str, tuple[float, str]] = {
    "%": (PERCENT, "1"),
    "B": (1.0, "By"),
    **dict.fromkeys(("KiB", "KB"), (2.0**10, "By")),
    **dict.fromkeys(("MiB", "MB"), (MIB, "By")),
    **dict.fromkeys(("GiB", "GB"), (2.0**30, "By")),
    "Hz": (1.0, "Hz"),
    "kHz": (1e3, "Hz"),
    "MHz": (MHZ, "Hz"),
    "GHz": (1e9, "Hz"),
    "W": (1.0, "W"),
    "mW": (1e-3, "W"),
    "kW": (1e3, "W"),
    "us": (1e-6, "s"),
    "ms": (1e-3, "s"),
    "s": (1.0, "s"),
    **dict.fromkeys(("C", "°C"), (1.0, "Cel")),
    "bank(s)": (1.0, "{bank}"),
}
"""The factor of each unit to its base unit, and the base unit in UCUM. nvidia-smi's MB are MiB."""
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z%()]*)", re.ASCII)
MISSING = (
    "",
    "-",
    "--",
    "n/a",
    "na",
    "nan",
    "-nan",
    "inf",
    "-inf",
    "infinity",
    "-infinity",
    "-1.#ind",
    "1.#qnan",
    "1.#inf",
    "#n/a",
    "<na>",
    "\\n",
    "unknown",
    "none",
    "null",
    "err!",
    "unknown error",
    "not supported",
    "requested functionality has been deprecated",
)
"""Cells without a value, in lower case. nvidia-smi prints ERR! and N/A, other loggers nan and None."""


def is_missing(cell: str) -> bool:
    """Whether there is no value: `[N/A]`, `[GPU is lost]` and others in brackets, `ERR!`, `nan`, an empty cell.

    A unit may follow.
    """
    if cell[:1].isdecimal() and "#" not in cell:
        return False
    word, blank, unit = cell.rpartition(" ")
    cell = word.rstrip() if blank and unit in UNITS else cell
    return (cell.startswith("[") and cell.endswith("]")) or cell.lower() in MISSING


def quantity(printed: str, base: str) -> Callable[[str], float]:
    """Reads a number with or without a unit. The result is in `printed`, in which nvidia-smi prints the field.

    `base` is the base unit of the field in UCUM. A unit of another dimension is not a value of the field.
    """
    usual = UNITS[printed][0] if printed else 1.0

    def read(cell: str) -> float:
        match = None if is_missing(cell) else _QUANTITY.fullmatch(cell)
        if not match:
            return _no_value(cell)
        number, unit = float(match[1]), match[2]
        if unit in ("", printed):
            return number
        factor, dimension = UNITS.get(unit, (0.0, None))
        if dimension != base:
            raise ValueError(f"not a unit of this field: {unit}")
        return number * factor / usual

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
    return one_of({state: float(state == word) for state in words})


def performance_state(cell: str) -> float:
    return float(cell[1:]) if re.fullmatch(r"P\d+", cell, re.ASCII) else _no_value(cell)


def bit_of_mask(bit: int) -> Callable[[str], float]:
    def read(cell: str) -> float:
        return float(bool(int(cell, 16) & bit)) if re.fullmatch(r"0x[0-9a-fA-F]+", cell) else _no_value(cell)

    return read


_MESSAGE = re.compile(
    r"\s*(?:unable to|failed to|nvidia-smi has failed|no devices|no gpus|warning|error|timeout"
    r"|gpu[ 0-9a-f:.]* (?:is lost|requires reset)|unknown error|gpu reset|invalid combination|field .* is not"
    r"|terminating)",
    re.IGNORECASE,
)


def is_message(line: str) -> bool:
    """Whether the line is a message of the driver or of nvidia-smi, which it prints between the rows."""
    return bool(_MESSAGE.match(line))
