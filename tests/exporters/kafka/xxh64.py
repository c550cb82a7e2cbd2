"""xxHash64 by its specification, to compare with: github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md"""

from typing import Final

_MASK: Final = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _MASK


def _round(sum_: int, lane: int) -> int:
    return _rotated((sum_ + lane * _P2) & _MASK, 31) * _P1 & _MASK


def xxh64(data: bytes) -> int:
    """The hash with the seed 0."""
    place, size = 0, len(data)
    if size >= 32:
        sums = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        while place + 32 <= size:
            lanes = [int.from_bytes(data[place + 8 * one : place + 8 * one + 8], "little") for one in range(4)]
            sums = [_round(sum_, lane) for sum_, lane in zip(sums, lanes, strict=True)]
            place += 32
        result = sum(_rotated(sum_, by) for sum_, by in zip(sums, (1, 7, 12, 18), strict=True)) & _MASK
        for sum_ in sums:
            result = ((result ^ _round(0, sum_)) * _P1 + _P4) & _MASK
    else:
        result = _P5
    result = (result + size) & _MASK
    while place + 8 <= size:
        lane = int.from_bytes(data[place : place + 8], "little")
        result = (_rotated(result ^ _round(0, lane), 27) * _P1 + _P4) & _MASK
        place += 8
    if place + 4 <= size:
        lane = int.from_bytes(data[place : place + 4], "little")
        result = (_rotated(result ^ (lane * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        place += 4
    for byte in data[place:]:
        result = _rotated(result ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    result = (result ^ (result >> 33)) * _P2 & _MASK
    result = (result ^ (result >> 29)) * _P3 & _MASK
    return result ^ (result >> 32)
