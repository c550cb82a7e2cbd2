"""A GPU that waits for its thread to launch work in small parts."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from otel_zernel_libraries.training.amounts import amount
from otel_zernel_libraries.training.causes.cause import CauseName, Evidence
from otel_zernel_libraries.training.causes.job import Job, WhatIf
from otel_zernel_libraries.training.ledger import Activity, Position

_PASSES: Final = frozenset({Position.FORWARD, Position.BACKWARD, Position.CLIP, Position.OPTIMIZER, Position.ZERO_GRAD})
_LAUNCHES: Final = frozenset({Activity.OPERATOR, Activity.PYTHON, Activity.NATIVE, Activity.UNKNOWN})
"""What a thread does while it launches."""
_SMALL: Final = 0.01
_LAUNCH: Final = 40e-6
"""Seconds that the operator of a launch takes, at most."""


def small_launches(job: Job) -> Iterator[WhatIf]:
    """The passes launch all their work at once."""
    if not job.has_device:
        return
    columns = np.array([one.position in _PASSES and one.activity in _LAUNCHES for one in job.moments])
    mean = job.a_step(job.spent[:, :, columns].sum(axis=2).mean(axis=0))
    if mean < _SMALL * job.step:
        return
    segments = job.ranks[0].segments
    launches = sum(one.count for segment in segments for one in segment.launches)
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
