"""The samples of a thread over its steps: what it runs on the CPU, and the positions that its Python frames show.

A step has about one sample, so the samples of a position are added up over steps.
"""

from collections.abc import Sequence
from typing import Final

from otel_zernel_libraries.training.ledger.moments import Activity, Position
from otel_zernel_libraries.training.ledger.snapshots import FRAME_POSITIONS, SAMPLED

_ENOUGH: Final = 10
"""Fewer samples divide no time. A segment with so many of its own needs no others: it may be a rare one."""
_MOST: Final = 200
"""A sum of samples decays so that it stays below this: a program changes."""
_LONG_US: Final = 50_000
_KNOWN: Final = 0.25
"""A segment that lasts so long shows its position itself, if so much of its time is known."""
_ENOUGH_US, _MOST_US = 100_000, 5_000_000
"""A sum over shorter segments shows nothing below the first, and decays so that it stays below the second."""
_ACTIVITIES: Final = tuple(filter(None, SAMPLED))
_MOST_OF_GAPS, _ENOUGH_OF_GAPS, _SMALL_PART = 100, 50, 50
"""A sum of samples of gaps between two steps stays below the first, as above. So many are enough, and gaps that are one
part in so many of the steps need none."""
_TICK: Final = 1.0
"""The clock ticks evenly, so a gap that is divided like the others has the expected samples, up to this number."""


class _Sums:
    """Sums over segments, by position."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sums: dict[Position, list[float]] = {}

    def __len__(self) -> int:
        return len(self._sums)

    def of(self, position: Position) -> Sequence[float]:
        """The sums so far; empty without one."""
        return self._sums.get(position, ())

    def add(self, position: Position, numbers: Sequence[int]) -> Sequence[float]:
        """The sums with these numbers."""
        total, before = sum(numbers), self._sums.get(position)
        if not total:
            return before or numbers
        kept = max(1 - total / self._most, 0)
        sums = [old * kept + new for old, new in zip(before or [0.0] * len(numbers), numbers, strict=True)]
        self._sums[position] = sums
        return sums


class ThreadSamples:
    """The samples of one thread."""

    def __init__(self) -> None:
        self._samples, self._frame_times, self._gaps = _Sums(_MOST), _Sums(_MOST_US), _Sums(_MOST_OF_GAPS)
        self._gaps_ns = 0
        """The time on the CPU in gaps so far."""

    @property
    def has_gaps(self) -> bool:
        """Whether it has samples of gaps."""
        return bool(self._gaps)

    def lacks_gaps(self, lasted: int) -> bool:
        """Whether samples are to divide more than a small part of the steps so far, which lasted so long (ns), but are
        too few."""
        return self._gaps_ns * _SMALL_PART > lasted and sum(self._gaps.of(Position.LOAD)) < _ENOUGH_OF_GAPS

    @property
    def has_frames(self) -> bool:
        """Whether Python frames have shown a position."""
        return bool(self._frame_times)

    def divide(self, position: Position, time: int, samples: Sequence[int]) -> dict[Activity, int] | None:
        """Divides the time (ns) on the CPU of a segment with these samples, by `SAMPLED`; None if they are too few."""
        counts: Sequence[float] = samples[1:]
        if sum(counts) < _ENOUGH:
            counts = self._samples.add(position, samples[1:])
            if sum(counts) < _ENOUGH:
                return None
        total = sum(counts)
        times = {activity: int(time * count / total) for activity, count in zip(_ACTIVITIES, counts, strict=True)}
        times[max(times, key=times.__getitem__)] += time - sum(times.values())
        return {activity: spent for activity, spent in times.items() if spent}

    def part_before_backward(
        self, before: int, after: int, of_waits: float | None = None, on_cpu: int = 0
    ) -> float | None:
        """The part of a gap between two steps with so many ns on the CPU, 0 to 1, in code before the backward pass.

        `before` and `after` are its samples in code before and after that pass. If these do not contradict, the part is
        that of its waits, or of earlier gaps. None if it is not known.
        """
        count, usual = before + after, self._gaps.of(Position.LOAD)
        self._gaps.add(Position.LOAD, (before, after))
        self._gaps_ns += on_cpu
        part = of_waits if of_waits is not None else usual[0] / sum(usual) if usual else None
        if not count:
            return part
        is_usual = part is not None and count < _MOST_OF_GAPS and abs(before - part * count) <= _TICK
        return part if is_usual else before / count

    def position(self, position: Position, time: int, frame_times: Sequence[int]) -> Position:
        """The position of a segment for which marks show this one. Most of its known time may show another.

        `time` is that on a CPU and in waits, us, and `frame_times` the part of it that is known. Many short segments
        together can be an environment. A short checkpoint among other segments is not found.
        """
        if time >= _LONG_US:
            return (sum(frame_times) >= time * _KNOWN and _majority(frame_times)) or position
        sums = self._frame_times.add(position, frame_times)
        is_environment = sum(sums) >= _ENOUGH_US and _majority(sums) is Position.ENVIRONMENT
        return Position.ENVIRONMENT if is_environment else position


def _majority(frame_times: Sequence[float]) -> Position | None:
    """The position that more than half of the time shows."""
    longest = max(range(len(frame_times)), key=frame_times.__getitem__)
    return FRAME_POSITIONS[longest] if frame_times[longest] * 2 > sum(frame_times) else None
