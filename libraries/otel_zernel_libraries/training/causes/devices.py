"""A GPU that waits for its thread to launch work in small parts, or that is slower than it could be."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final

import numpy as np

from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.causes.cause import CauseName, Evidence
from otel_zernel_libraries.training.causes.facts import GpuFacts
from otel_zernel_libraries.training.causes.job import Job, WhatIf
from otel_zernel_libraries.training.ledger import Activity, Position
from otel_zernel_libraries.training.words import throttle_name

_PASSES: Final = frozenset({Position.FORWARD, Position.BACKWARD, Position.CLIP, Position.OPTIMIZER, Position.ZERO_GRAD})
_LAUNCHES: Final = frozenset({Activity.OPERATOR, Activity.PYTHON, Activity.NATIVE, Activity.UNKNOWN})
"""What a thread does while it launches."""
_SMALL: Final = 0.01
_LAUNCH: Final = 40e-6
"""Seconds that the operator of a launch takes, at most."""
_MOST: Final = 3
"""Other programs that are named."""


def small_launches(job: Job) -> Iterator[WhatIf]:
    """The passes launch all their work at once."""
    if not job.has_device:
        return
    columns = np.array([moment.position in _PASSES and moment.activity in _LAUNCHES for moment in job.moments])
    mean = job.a_step(job.spent[:, :, columns].sum(axis=2).mean(axis=0))
    if mean < _SMALL * job.step:
        return
    segments = job.ranks[0].segments
    launches = sum(launch.count for segment in segments for launch in segment.launches)
    steps = (segments[-1].end - segments[0].begin) / 1e9 / job.step
    if mean * steps > _LAUNCH * launches:
        return  # the thread does something else, too
    longest = int(np.flatnonzero(columns)[job.spent[:, :, columns].sum(axis=(0, 1)).argmax()])
    yield WhatIf(
        cause=CauseName.SMALL_LAUNCHES,
        position=job.moments[longest].position,
        activity=job.moments[longest].activity,
        removed=dict.fromkeys(range(len(job.ranks)), columns[None, :].astype(np.float64)),
        evidence=(
            Evidence(
                f"The training thread needs {amount(mean)} of each {amount(job.step)} to launch "
                f"{launches / steps:,.0f} kernels.",
                mean,
                "s",
            ),
        ),
    )


def slow_devices(job: Job) -> Iterator[WhatIf]:
    """GPUs at their highest clocks, and GPUs without other programs. How much of a kernel's time depends on the clock,
    and how two programs share a GPU, is not known: the gain is a bound."""
    if not job.has_device:
        return
    gpus = {at: rank.facts.gpu or GpuFacts() for at, rank in enumerate(job.ranks)}
    yield from _slow(
        job,
        CauseName.DEVICE_CLOCKS,
        {at: gpu.pace for at, gpu in gpus.items()},
        lambda at: [
            *(
                Evidence(f"For {percent(part)} of the time, the reason is: {throttle_name(reason)}.", part, "1")
                for reason, part in gpus[at].lowered.items()
                if part >= _SMALL
            ),
            Evidence(
                f"The clock of its cores is at {percent(gpus[at].clock)} of the highest one. Kernels that wait for "
                "memory gain less than others.",
                gpus[at].clock,
                "1",
            ),
        ],
    )
    yield from _slow(
        job,
        CauseName.DEVICE_SHARED,
        {at: 1.0 - gpu.shared for at, gpu in gpus.items()},
        lambda at: [
            *(
                Evidence(f"Process {pid} uses it for {percent(part)} of the time.", part, "1")
                for pid, part in sorted(gpus[at].others.items(), key=itemgetter(1), reverse=True)[:_MOST]
                if part >= _SMALL
            ),
            Evidence(
                f"Others use it for {percent(gpus[at].shared)} of the time. The job gains less if they leave parts "
                "of the GPU free.",
                gpus[at].shared,
                "1",
            ),
        ],
    )


def _slow(
    job: Job, cause: CauseName, paces: Mapping[int, float], evidence: Callable[[int], Sequence[Evidence]]
) -> Iterator[WhatIf]:
    """`paces`: by the index of a rank, the part of its GPU's work that is left. `evidence`: of the slowest one."""
    slow = {at: pace for at, pace in paces.items() if pace < 1.0 - _SMALL}
    if not slow:
        return
    slowest = min(slow, key=slow.__getitem__)
    rank = job.ranks[slowest].rank if len(slow) < len(job.ranks) else None
    yield WhatIf(cause=cause, rank=rank, paces=slow, is_bound=True, evidence=tuple(evidence(slowest)))
