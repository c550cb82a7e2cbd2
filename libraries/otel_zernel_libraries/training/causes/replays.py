"""What a job would take without something: its measured steps, replayed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from otel_zernel_libraries.training.causes.job import FOR_CPU, ON_CPU, Job, WhatIf
from otel_zernel_libraries.training.device import Replayed, Segment, meet, replay
from otel_zernel_libraries.training.device.segments import Kind
from otel_zernel_libraries.training.device.streams import NS, Flags, Floats, Integers
from otel_zernel_libraries.training.ledger import MOMENTS


class LeftOut(NamedTuple):
    """What a replay leaves out. Few moments, or the same part for all ranks and intervals, need little memory."""

    moments: Integers
    """The columns of the moments."""
    part: Floats
    """The part of their time, 0 to 1: by rank (or one for all), interval (or one for all) and moment."""
    faster: Floats | None = None
    apart: Flags | None = None
    paces: Mapping[int, float] = MappingProxyType({})
    """As in `WhatIf`."""


class _Thread(NamedTuple):
    """A rank with a GPU, as it is replayed."""

    parts: Sequence[Segment]
    places: Integers
    """The segment that ends at each edge."""
    rows: Integers
    """The interval of each segment."""
    spent: Floats
    """Seconds by segment and moment."""


NOTHING: Final = LeftOut(np.empty(0, dtype=np.int64), np.empty((1, 1, 0)))


class Replays:
    """The replays of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def left_out(self, what_if: WhatIf) -> LeftOut:
        """What the replay of a job without something leaves out."""
        arrays = list(what_if.removed.values())
        if len(arrays) == len(self.job.ranks) and all(array is arrays[0] for array in arrays):
            part = np.broadcast_to(arrays[0], (len(arrays[0]), len(self.job.moments)))[None]
        else:
            part = np.zeros((len(self.job.ranks), max(map(len, arrays), default=1), len(self.job.moments)))
            for rank, part_ in what_if.removed.items():
                part[rank] = part_
        moments = np.flatnonzero(part.any(axis=(0, 1)))
        return LeftOut(moments, part[:, :, moments], what_if.faster, what_if.apart, what_if.paces)

    def with_waits(self, left_out: LeftOut) -> LeftOut:
        """The same with its part of the waits for a CPU in the same position."""
        moments, part = left_out.moments, left_out.part
        for on_cpu, waits, total in self._cpu_times:
            own = on_cpu[left_out.moments]
            if not own.any():
                continue
            gone = (self.job.spent[:, :, left_out.moments[own]] * left_out.part[:, :, own]).sum(axis=2)
            share = np.divide(gone, total, out=np.zeros_like(total), where=total > 0)
            if share.any():
                before, is_gone = moments, waits.copy()
                is_gone[moments] = True
                moments = np.flatnonzero(is_gone)
                complete = np.zeros((*share.shape, len(moments)))
                complete[:, :, np.searchsorted(moments, before)] = part
                at = waits[moments]
                complete[:, :, at] = np.maximum(complete[:, :, at], share[:, :, None])
                part = complete
        return left_out._replace(moments=moments, part=part)

    @cached_property
    def _cpu_times(self) -> list[tuple[Flags, Flags, Floats]]:
        """By position: the moments on a CPU, those of waits for one, and the seconds on a CPU."""
        times = []
        for position in dict.fromkeys(moment.position for moment in self.job.moments):
            on_cpu, waits = (
                np.array([moment.position is position and moment.activity in some for moment in self.job.moments])
                for some in (ON_CPU, FOR_CPU)
            )
            if on_cpu.any() and waits.any():
                times.append((on_cpu, waits, self.job.spent[:, :, on_cpu].sum(axis=2)))
        return times

    def without(self, left_out: Sequence[LeftOut]) -> Floats:
        """The seconds of each interval (rows) without something (columns)."""
        if self.job.has_device:
            return self._on_devices(left_out)
        transfers, joined = self._meetings(self.job.transfers, left_out)
        durations = np.empty_like(transfers)
        for column, cause in enumerate(left_out):
            gone = self.job.spent[:, :, cause.moments] * (cause.part * self.job.is_own[cause.moments])
            own = np.maximum(self.job.own - gone.sum(axis=2), 0.0)
            durations[:, column] = meet(own, transfers[:, column], joined[:, column])
        return durations

    def _meetings(self, seconds: Floats, left_out: Sequence[LeftOut]) -> tuple[Floats, Flags]:
        """By interval and column: the seconds of the transfer, and whether the ranks wait for each other."""
        transfers = np.repeat(seconds[:, None], len(left_out), axis=1)
        joined = np.ones(transfers.shape, dtype=np.bool_)
        for column, cause in enumerate(left_out):
            if cause.faster is not None:
                transfers[:, column] *= 1.0 - cause.faster
            if cause.apart is not None:
                joined[:, column] = ~cause.apart
        return transfers, joined

    def _on_devices(self, left_out: Sequence[LeftOut]) -> Floats:
        """The same on GPUs, whose ranks meet at the edges."""
        threads = []
        for rank, thread in enumerate(self._threads):
            removed = np.zeros((len(thread.parts), len(left_out)))
            for column, out in enumerate(left_out):
                gone = np.broadcast_to(out.part, (len(self.job.ranks), len(self.job.seconds), len(out.moments)))
                of_parts = gone[rank, thread.rows] * self.job.is_own[out.moments]
                removed[:, column] = (thread.spent[:, out.moments] * of_parts).sum(axis=1)
            paces = np.array([out.paces.get(rank, 1.0) for out in left_out])
            works: Mapping[Kind, float | Floats] = self.job.ranks[rank].works
            if (paces < 1.0).any():
                works = {kind: work * paces for kind, work in works.items()}
            threads.append(Replayed(thread.parts, works, removed))
        places = [thread.places for thread in self._threads]
        if not self._meets_others:
            return _between(replay(threads), places)
        transfers, joined = self._meetings(self._transfers_on_devices, left_out)
        # the first meeting is before the first interval
        first = min(int(np.argmax(place >= 0)) for place in places)
        transfers = np.vstack([np.zeros((1, len(left_out))), transfers])[first:]
        joined = np.vstack([np.ones((1, len(left_out)), dtype=np.bool_), joined])[first:]
        return _between(replay(threads, transfers, joined), places)

    @property
    def _meets_others(self) -> bool:
        return not (self.job.alone and self.job.is_whole)

    @cached_property
    def _threads(self) -> list[_Thread]:
        threads = []
        for rank, job_rank in enumerate(self.job.ranks):
            edges = self.job.times[:, rank]
            ends = [part.end for part in job_rank.segments]
            places = np.searchsorted(ends, edges, side="right") - 1
            meets = frozenset(places[places >= 0].tolist() if self._meets_others else ())
            parts = [replace(part, meets=True) if at in meets else part for at, part in enumerate(job_rank.segments)]
            rows = np.clip(np.searchsorted(edges, ends) - 1, 0, len(self.job.seconds) - 1)
            threads.append(_Thread(parts, places, rows, self._spent_in(parts)))
        return threads

    @cached_property
    def _transfers_on_devices(self) -> Floats:
        """The seconds of the transfer of each interval: what the replay lacks without it, at most what was measured."""
        bare = [
            Replayed(thread.parts, rank.works, np.zeros((len(thread.parts), 1)))
            for thread, rank in zip(self._threads, self.job.ranks, strict=True)
        ]
        lasted = _between(replay(bare), [thread.places for thread in self._threads])[:, 0]
        transfers: Floats = np.minimum(np.maximum(self.job.seconds - lasted, 0.0), self.job.transfers)
        return transfers

    def _spent_in(self, parts: Sequence[Segment]) -> Floats:
        """Seconds by segment and moment."""
        columns = {moment: at for at, moment in enumerate(self.job.moments)}
        spent = np.zeros((len(parts), len(self.job.moments)))
        for at, part in enumerate(parts):
            for activity, time in part.activities.items():
                if (column := columns.get(MOMENTS[part.position][activity])) is not None:
                    spent[at, column] += time * NS
        return spent


def _between(ends: Sequence[Floats], places: Sequence[Integers]) -> Floats:
    """The seconds of each interval by what-if, as the mean of the ranks. `ends`: of the segments of each rank.
    `places`: the segment that ends at each edge."""
    whole = [np.vstack([np.zeros(each.shape[1]), each]) for each in ends]
    lasted: Floats = np.mean([np.diff(each[at + 1], axis=0) for each, at in zip(whole, places, strict=True)], axis=0)
    return lasted
