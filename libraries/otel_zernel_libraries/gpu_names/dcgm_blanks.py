"""DCGM's values for "no value": the blanks of dcgm_structs.h, which exporters print like measurements."""

import math
from functools import lru_cache

from otel_zernel_libraries.gpu_names.newer_dcgm import MEASURES

SMALLEST = 2147483632.0
"""`DCGM_INT32_BLANK`. All blanks are at least as large."""
_INT64 = 9.2233e18
"""Just below `DCGM_INT64_BLANK` (2^63 - 16), since some writers round it. No measurement is as large."""
EXACT = frozenset(blank + reason for blank in (SMALLEST, 2.0**47) for reason in range(4))
"""Blank, not found, not supported and not permitted, each for `INT32` and for `FP64` (2^47)."""
TEXTS = frozenset({"<<<NULL>>>", "<<<NOT_FOUND>>>", "<<<NOT_SUPPORTED>>>", "<<<NOT_PERM>>>"})
"""The blanks of labels."""

_NARROW = frozenset({"", "1", "Cel", "W", "{lane}", "{bank}"})
"""Units whose values never reach `SMALLEST`. So don't MiB and MHz. Bytes, seconds and counters do."""


@lru_cache(maxsize=4096)
def blank_from(name: str) -> float:
    """From this raw value on, a metric with this name has no value; infinite if the name is not of a DCGM field."""
    if not name.startswith("DCGM_"):
        return math.inf
    measure = MEASURES.get(name)
    if measure is None or measure.descriptor.kind == "sum":
        return _INT64
    is_narrow = measure.descriptor.unit in _NARROW or (measure.descriptor.unit in ("By", "Hz") and measure.scale > 1)
    return SMALLEST if is_narrow else _INT64


def is_blank(name: str, value: float) -> bool:
    """Whether the raw value of a metric with this name is none."""
    limit = blank_from(name)
    return limit != math.inf and (value >= limit or value in EXACT)
