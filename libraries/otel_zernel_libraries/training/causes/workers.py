"""The workers of DataLoaders, and iterators: why the training thread waits for batches that others make."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from otel_zernel_libraries.training.amounts import amount, percent
from otel_zernel_libraries.training.causes.cause import CauseName, Evidence
from otel_zernel_libraries.training.causes.facts import Facts
from otel_zernel_libraries.training.causes.job import Job, WhatIf
from otel_zernel_libraries.training.ledger import Activity, Position, StepEvent

_WAITS: Final = frozenset({Activity.LOCK, Activity.PIPE, Activity.SOCKET, Activity.TIMER, Activity.UNKNOWN})
"""Waits for a batch in a queue."""
_SMALL: Final = 0.01
_OFTEN: Final = 0.5
"""Iterators by training step, from which on each step has its own."""


def iterators(job: Job) -> Iterator[WhatIf]:
    """A job that makes its iterator once: its workers load the next batches while it trains, and it starts no others.

    Without workers, a new iterator takes no time of its own: what its sampler needs is a part of the load.
    """
    made, started = (
        job.a_step(job.events(0, StepEvent(name)).astype(np.float64)) for name in ("iterator", "worker_start")
    )
    if made < _OFTEN or started < _OFTEN:
        return
    loads = np.array([moment.position is Position.LOAD for moment in job.moments]) & job.is_own
    waits = loads & np.array([moment.activity in _WAITS for moment in job.moments])
    load, wait = (job.a_step(job.spent[:, :, some].sum(axis=2).mean(axis=0)) for some in (loads, waits))
    if load < _SMALL * job.step:
        return
    # the workers of one iterator would make a batch each in this time
    left = max(wait * made / started - (job.step - load), 0.0)
    part = loads - waits * (left / wait if wait else 0.0)
    longest = int(np.flatnonzero(loads)[job.spent[:, :, loads].sum(axis=(0, 1)).argmax()])
    yield WhatIf(
        cause=CauseName.ITERATOR_PER_STEP,
        position=Position.LOAD,
        activity=job.moments[longest].activity,
        removed=dict.fromkeys(range(len(job.ranks)), part[None, :]),
        evidence=(
            Evidence(f"Each step makes {made:.1f} iterators of a DataLoader.", made, "{iterator}"),
            Evidence(f"They start {started:.1f} worker processes.", started, "{process}"),
            Evidence(
                f"All this takes {amount(load)} of each {amount(job.step)} ({percent(load / job.step)}).", load, "s"
            ),
        ),
    )


def workers(job: Job) -> Iterator[WhatIf]:
    """A job that does not wait for its workers."""
    columns = np.array([moment.position is Position.LOAD and moment.activity in _WAITS for moment in job.moments])
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
    if facts.are_workers_busy is False:
        return facts.worker_io is not None and facts.worker_io > 0.2 * facts.workers
    return facts.cpus >= facts.workers + 2


def _doings(facts: Facts) -> Iterator[Evidence]:
    if not facts.workers:
        return
    if facts.worker_cpu is not None:
        who = "Its worker uses" if facts.workers == 1 else f"Its {facts.workers} workers use"
        text = f"{who} {facts.worker_cpu:.1f} of {facts.cpus or 0:g} CPUs."
        yield Evidence(text, facts.worker_cpu, "{cpu}")
    if facts.worker_io:
        text = f"On average, {facts.worker_io:.1f} of them wait for storage."
        yield Evidence(text, facts.worker_io, "{process}")
