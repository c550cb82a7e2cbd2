"""Memory that grows: it takes no time of a step, but ends the job."""

from collections.abc import Iterator
from math import isclose
from typing import Final

from otel_zernel_libraries.training.causes.cause import CauseName, Evidence
from otel_zernel_libraries.training.causes.facts import Facts
from otel_zernel_libraries.training.causes.job import Job, WhatIf

_HOUR: Final = 3_600
_GIB: Final = 2**30
_MUCH: Final = 256 * 2**20
"""Bytes an hour. Less may be a cache that fills."""
_SOON: Final = 7 * 24 * _HOUR
"""Seconds to the limit. Later ones are no news."""
_SAME: Final = 0.01
"""The memory that a limit leaves is read for one rank after the other."""


def memory_growth(job: Job) -> Iterator[WhatIf]:
    """The rank whose memory grows fastest, with that of its workers."""
    fastest = max(job.ranks, key=lambda rank: _rate(rank.facts))
    rate, left = _rate(fastest.facts), fastest.facts.memory_left
    if rate * _HOUR < _MUCH:
        return
    evidence = [Evidence(f"Its memory grows by {rate * _HOUR / _GIB:.1f} GiB an hour.", rate, "By/s")]
    if of_workers := fastest.facts.worker_growth:
        text = f"The memory of its DataLoader workers grows by {of_workers * _HOUR / _GIB:.1f} GiB of that."
        evidence.append(Evidence(text, of_workers, "By/s"))
    if left is not None and (until := left / _rate_below_limit(job, left)) < _SOON:
        hours, minutes = divmod(round(until / 60), 60)
        text = f"At this rate it meets the limit of its container in {hours} h {minutes} min."
        evidence.append(Evidence(text, until, "s"))
    yield WhatIf(cause=CauseName.MEMORY_GROWTH, rank=fastest.rank, evidence=tuple(evidence))


def _rate_below_limit(job: Job, left: float) -> float:
    """The bytes a second of all ranks below a limit. Ranks with the same memory left share it."""
    below = (rank.facts for rank in job.ranks if isclose(rank.facts.memory_left or 0.0, left, rel_tol=_SAME))
    return sum(map(_rate, below))


def _rate(facts: Facts) -> float:
    """The bytes a second by which a rank and its workers grow."""
    return (facts.memory_growth or 0.0) + (facts.worker_growth or 0.0)


def knows_memory(job: Job) -> bool:
    """Whether it is known if the memory of a rank grows."""
    return any(rank.facts.memory_growth is not None for rank in job.ranks)
