"""The workers of DataLoaders, and iterators: why the training thread waits for batches that others make."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.causes.cause import CauseName, Evidence
from otel_zernel_libraries.training.causes.facts import BUSY, Facts
from otel_zernel_libraries.training.causes.job import Job, WhatIf
from otel_zernel_libraries.training.ledger import Activity, Position, StepEvent

_WAITS: Final = frozenset({Activity.LOCK, Activity.PIPE, Activity.SOCKET, Activity.TIMER, Activity.UNKNOWN})
"""Waits for a batch in a queue."""
_SMALL: Final = 0.01


def workers(job: Job) -> Iterator[WhatIf]:
    """A job that does not wait for its workers."""
    columns = np.array([one.position is Position.LOAD and one.activity in _WAITS for one in job.moments])
    mean = job.a_step(job.spent[:, :, columns].sum(axis=2).mean(axis=0))
    if mean < _SMALL * job.step:
        return
    facts = job.ranks[0].facts
    longest = int(np.flatnonzero(columns)[job.spent[:, :, columns].sum(axis=(0, 1)).argmax()])
    waits = (
        f"The training thread waits {amount(mean)} of each {amount(job.step)} ({percent(mean / job.step)}) for a batch."
    )
    yield WhatIf(
        cause=CauseName.WORKERS_TOO_FEW if has_room(facts) else CauseName.WORKERS_SLOW,
        position=Position.LOAD,
        activity=job.moments[longest].activity,
        removed=dict.fromkeys(range(len(job.ranks)), columns[None, :].astype(np.float64)),
        evidence=(Evidence(waits, mean, "s"), *_doings(facts)),
    )


def has_workers(job: Job) -> bool:
    """Whether workers make batches."""
    return bool(job.events(0, StepEvent("worker_batch")).any())


def has_room(facts: Facts) -> bool:
    """Whether more workers have CPUs of their own, or need none because they wait."""
    if facts.cpus is None or not facts.workers:
        return False
    if facts.worker_cpu is not None and facts.worker_cpu < BUSY * facts.workers:
        return facts.worker_io is not None and facts.worker_io > 0.2 * facts.workers
    return facts.cpus >= facts.workers + 2


def _doings(facts: Facts) -> Iterator[Evidence]:
    if not facts.workers:
        return
    if facts.worker_cpu is not None:
        text = f"Its {facts.workers} workers use {facts.worker_cpu:.1f} CPUs, of {facts.cpus or 0:g}."
        yield Evidence(text, facts.worker_cpu, "{cpu}")
    if facts.worker_io:
        yield Evidence(f"{facts.worker_io:.1f} of them wait for storage.", facts.worker_io, "{process}")
