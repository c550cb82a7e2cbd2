"""A question to a device: NVML's function, how it is asked, and the series its answer becomes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from otel_zernel_receivers.nvml.driver.library import Handle, Nvml
from otel_zernel_receivers.nvml.points.series import Stream

Ask = Callable[[Nvml, Handle], Sequence[float]]
"""Asks a device; a value for each stream of the query, nan for none."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question to a device. The first of `asks` that the driver knows is used."""

    name: str
    """NVML's function, as `zernel.nvml.query.duration` names it."""
    streams: tuple[Stream, ...]
    asks: tuple[Ask, ...]


def _select(answer: Any, keys: Sequence[str | int]) -> list[float]:
    """The parts of an answer: of a structure, of a list, or itself."""
    if not keys:
        return [answer]
    return [answer[key] if isinstance(key, int) else getattr(answer, key) for key in keys]


def call(function: str, *arguments: int, parts: Sequence[str | int] = ()) -> Ask:
    """Asks a function; the answer's `parts` are the values."""

    def ask(nvml: Nvml, device: Handle) -> Sequence[float]:
        return _select(getattr(nvml, function)(device, *arguments), parts)

    return ask


def query(
    function: str, *streams: Stream, of: int | None = None, parts: Sequence[str | int] = (), older: str = ""
) -> Query:
    """A question to one function, in older drivers called otherwise, about the `of` it takes as its argument."""
    arguments = () if of is None else (of,)
    functions = (function, older) if older else (function,)
    return Query(function, streams, tuple(call(name, *arguments, parts=parts) for name in functions))
