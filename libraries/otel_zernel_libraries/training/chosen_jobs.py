"""A processor, made in memory, that lets only the data of the chosen jobs pass."""

from collections.abc import Callable, Iterator
from typing import Any

import psutil

from otel_zernel.batch import Batch
from otel_zernel.component import Component, Processor
from otel_zernel_libraries.job_choice import JobChoice, names_of
from otel_zernel_libraries.resources import editable_holders_of, holders_of
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.names import launcher_of
from otel_zernel_libraries.training.points import scalars_of
from otel_zernel_libraries.training.programs import title_of

CHOSEN = "chosen"
"""The type of the processor. It exists in this process only."""
_MOST_PROCESSES = 4096
"""Processes whose ancestors are remembered."""


def ancestors_of(pid: int) -> tuple[int, ...]:
    """Its parent, grandparent and so on; empty if it has ended."""
    try:
        return tuple(parent.pid for parent in psutil.Process(pid).parents())
    except (psutil.Error, OSError):
        return ()


def choosing(choice: JobChoice, read_ancestors: Callable[[int], tuple[int, ...]] = ancestors_of) -> type[Component]:
    """A processor that drops the resources of processes of other jobs. Other resources, such as GPUs, pass."""

    class ChosenJobs(Processor):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self._ancestors: dict[int, tuple[int, ...]] = {}
            self._jobs: set[str] = set()
            """The jobs of chosen ranks. The other ranks belong to them."""

        def process(self, batch: Batch) -> Iterator[Batch]:
            for signal in batch.signals:
                resources = holders_of(batch, signal)
                kept = [at for at, resource in enumerate(resources) if self._is_chosen(resource.resource.attributes)]
                if len(kept) < len(resources):
                    edited = editable_holders_of(batch, signal)
                    chosen = [edited[at] for at in kept]
                    del edited[:]
                    edited.extend(chosen)
            if batch.item_count:
                yield batch

        def _is_chosen(self, pairs: Any) -> bool:
            attributes = scalars_of(pairs)
            pid = attributes.get("process.pid")
            if not isinstance(pid, int):
                return True
            job = str(attributes.get(semconv.JOB_ID) or launcher_of(attributes)) if semconv.RANK in attributes else ""
            if pid not in self._ancestors and len(self._ancestors) < _MOST_PROCESSES:
                self._ancestors[pid] = read_ancestors(pid)
            names = {title_of(attributes), launcher_of(attributes), *names_of(attributes)}
            if choice.includes((pid,), self._ancestors.get(pid, ()), names):
                self._jobs.update({job} - {""})
                return True
            return job in self._jobs

    return ChosenJobs
