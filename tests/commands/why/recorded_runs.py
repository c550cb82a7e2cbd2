"""Reports on recorded training runs: real spans of the ebpf receiver, through the real phases processor."""

from functools import partial
from itertools import chain
from typing import Any

from benchmarks.training.runs import recorded
from otel_zernel.batch import Batch
from otel_zernel.otlp.points import key_values
from otel_zernel.registry import Registry
from otel_zernel.testing import make_context
from otel_zernel_commands.why.findings import Circumstances, WhyReport, report_on
from otel_zernel_commands.why.watch import collecting, watch_settings, watched_state
from otel_zernel_libraries.job_choice import JobChoice
from otel_zernel_libraries.training.state import SeenProcess, TrainingState

SECONDS = 60.0
SETTINGS = watch_settings(SECONDS, collecting(watched_state()), Registry.installed())


def circumstances(**more: Any) -> Circumstances:
    """A watch of a minute."""
    usual = {
        "started_ns": 2_000_000_000_000_000_000,
        "seconds": SECONDS,
        "is_interrupted": False,
        "processes": 120,
    }
    return Circumstances(**{**usual, **more})


def processed(name: str, *, is_job: bool = False) -> list[Batch]:
    """The output of phases, as the command configures it, for a recorded run.

    The recordings have no ranks. With `is_job`, its processes are the ranks of one job, in the order of their pids.
    """
    settings = SETTINGS.processors["phases"]
    processor: Any = settings.cls(settings.config, make_context("processors", "phases"))
    batches, truths = recorded(name)
    if is_job:
        batches = list(map(partial(_with_ranks, pids=sorted(truth["pid"] for truth in truths)), batches))
    results = chain(chain.from_iterable(map(processor.process, batches)), processor.flush())
    return list(results)


def _with_ranks(batch: Batch, pids: list[int]) -> Batch:
    for of_process in batch.edit_spans().resource_spans:
        named = {pair.key: pair.value.int_value for pair in of_process.resource.attributes}
        rank = {"zernel.rank": pids.index(named["process.pid"]), "zernel.world_size": len(pids)}
        of_process.resource.attributes.extend(key_values({**rank, "zernel.job.id": "trainer/localhost:29500"}))
    return batch


def seen(name: str, command: tuple[str, ...] = ("python", "train.py"), *, is_job: bool = False) -> TrainingState:
    """Everything that the command has seen of a recorded run."""
    state = watched_state(lambda _: command)
    for batch in processed(name, is_job=is_job):
        state.add(batch, 0.0)
    state.settle(0.0)
    return state


def first_process(state: TrainingState) -> SeenProcess:
    """The process with the smallest pid."""
    return min(state.processes, key=lambda process: process.pid)


def report(name: str, choice: JobChoice | None = None, *, is_job: bool = False, **more: Any) -> WhyReport:
    """The report on a recorded run."""
    return report_on(seen(name, is_job=is_job), choice or JobChoice(), circumstances(**more))
