"""A query to a device: an NVML function, the ways to call it, and the series of its values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from otel_zernel_receivers.nvml.driver.library import Handle, Nvml
from otel_zernel_receivers.nvml.points.series import NvmlSeries

MAX_FIELDS = 32
"""Fields in one call of `nvmlDeviceGetFieldValues`."""

ReadValues = Callable[[Nvml, Handle], Sequence[float]]
"""Calls NVML for a device. Returns one value per series of the query, NaN for a missing value."""


@dataclass(frozen=True, slots=True)
class NvmlQuery:
    """A query to a device."""

    name: str
    """The NVML function, which is also the `zernel.nvml.query` of `zernel.nvml.query.duration`."""
    series: tuple[NvmlSeries, ...]
    variants: tuple[ReadValues, ...]
    """The ways to call NVML, newest first. The first that the driver supports is used."""


def read_values(function: str, *arguments: int, parts: Sequence[str | int] = ()) -> ReadValues:
    """Calls `function` with the device and `arguments`.

    The values are the `parts` of the answer, by attribute name or index; without parts, the answer is the value.
    """

    def read(nvml: Nvml, device: Handle) -> Sequence[float]:
        return _select(getattr(nvml, function)(device, *arguments), parts)

    return read


def _select(answer: Any, parts: Sequence[str | int]) -> list[float]:
    if not parts:
        return [answer]
    return [answer[part] if isinstance(part, int) else getattr(answer, part) for part in parts]


def query(
    function: str,
    *series: NvmlSeries,
    argument: int | None = None,
    parts: Sequence[str | int] = (),
    older_function: str = "",
) -> NvmlQuery:
    """A query of one function, with an optional `argument`. `older_function` is its name in older drivers."""
    arguments = () if argument is None else (argument,)
    functions = (function, older_function) if older_function else (function,)
    return NvmlQuery(function, series, tuple(read_values(name, *arguments, parts=parts) for name in functions))
