"""Unsigned numbers of OTLP in the signed columns of the databases."""

from collections.abc import Iterable
from typing import Final

_HALF_64: Final = 1 << 63
_ALL_64: Final = 1 << 64
_HALF_32: Final = 1 << 31
_ALL_32: Final = 1 << 32
LATEST_TIME: Final = 9_200_000_000 * 10**9
"""The last time that a store accepts, in ns: in July 2261. 64 bits with a sign end in April 2262, and the partition
of a time must end before."""


def signed64(number: int) -> int:
    """The signed number with the same 64 bits."""
    return number if number < _HALF_64 else number - _ALL_64


def unsigned64(number: int) -> int:
    """The unsigned number with the same 64 bits."""
    return number if number >= 0 else number + _ALL_64


def signed32(number: int) -> int:
    """The signed number with the same 32 bits."""
    return number if number < _HALF_32 else number - _ALL_32


def unsigned32(number: int) -> int:
    """The unsigned number with the same 32 bits."""
    return number if number >= 0 else number + _ALL_32


def all_signed64(numbers: Iterable[int]) -> list[int]:
    """A list of signed numbers. Counts over 2^63 are very rare."""
    found = list(numbers)
    return found if not found or max(found) < _HALF_64 else list(map(signed64, found))
