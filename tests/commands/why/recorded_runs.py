"""Reports on recorded training runs: real spans of the ebpf receiver, through the real phases processor.

`simulated` is the job of examples/simulated_job in place of a recording: eight ranks on GPUs.
"""

import random
from collections.abc import Iterable, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from benchmarks.training.runs import pid_of, recorded
from examples.simulated_job.__main__ import SimulatedJob
from examples.simulated_job.training import SECOND
from otel_zernel.batch import Batch
from otel_zernel.otlp.points import key_values
from otel_zernel.registry import Registry
from otel_zernel.testing import make_context
from otel_zernel_commands.why.findings import Circumstances, WhyReport, report_on
from otel_zernel_commands.why.watch import collecting, watch_settings, watched_state
from otel_zernel_libraries.job_choice import JobChoice
from otel_zernel_libraries.training.state import SeenProcess, TrainingState

SECONDS = 60.0
START_NS = 1_800_000_000 * SECOND
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


@cache
def processed(name: str, *, is_job: bool = False, ranks: int | None = None) -> Sequence[Batch]:
    """The output of phases, as the command configures it, for a recorded run.

    The recordings of scenarios have no ranks. With `is_job`, their processes are the ranks of one job, in the order of
    their pids. `ranks`: only the first ones are seen.
    """
    batches, truths = recorded(name)
    pids = sorted(truth["pid"] for truth in truths)
    if is_job:
        batches = list(map(partial(_with_ranks, pids=pids), batches))
    if ranks is not None:
        batches = list(map(partial(_without, pids=set(pids[ranks:])), batches))
    return through_phases(batches)


def through_phases(batches: Iterable[Batch]) -> list[Batch]:
    """The output of phases, as the command configures it."""
    settings = SETTINGS.processors["phases"]
    processor: Any = settings.cls(settings.config, make_context("processors", "phases"))
    return list(chain(chain.from_iterable(map(processor.process, batches)), processor.flush()))


def _without(batch: Batch, pids: set[int]) -> Batch:
    """Without the data of these processes."""
    has_spans = "traces" in batch.signals
    data: Any = batch.edit_spans().resource_spans if has_spans else batch.edit_metrics().resource_metrics
    left = [one for one in data if pid_of(one) not in pids]
    del data[:]
    data.extend(left)
    return batch


def _with_ranks(batch: Batch, pids: list[int]) -> Batch:
    for of_process in batch.edit_spans().resource_spans:
        named = {pair.key: pair.value.int_value for pair in of_process.resource.attributes}
        rank = {"zernel.rank": pids.index(named["process.pid"]), "zernel.world_size": len(pids)}
        of_process.resource.attributes.extend(key_values({**rank, "zernel.job.id": "trainer/localhost:29500"}))
    return batch


def seen(
    name: str, command: tuple[str, ...] = ("python", "train.py"), *, is_job: bool = False, ranks: int | None = None
) -> TrainingState:
    """Everything that the command has seen of a recorded run."""
    return state_of(processed(name, is_job=is_job, ranks=ranks), command)


def state_of(batches: Iterable[Batch], command: tuple[str, ...] = ("python", "train.py")) -> TrainingState:
    """Everything that the command has seen in these batches."""
    state = watched_state(lambda _: command)
    for batch in batches:
        state.add(batch, 0.0)
    state.settle(0.0)
    return state


def simulated(seconds: int = 12) -> TrainingState:
    """Everything that the command has seen of the simulated job in so many seconds."""
    return state_of(_simulated(seconds))


@cache
def _simulated(seconds: int) -> Sequence[Batch]:
    random.seed(1)
    job = SimulatedJob(START_NS)
    requests = list(chain.from_iterable(job.read(START_NS + second * SECOND) for second in range(1, seconds + 1)))
    batches = [
        Batch(spans=TracesData.FromString(request.SerializeToString()))
        if hasattr(request, "resource_spans")
        else Batch(metrics=MetricsData.FromString(request.SerializeToString()))
        for request in requests
    ]
    return [*batches, *through_phases(batches)]


def first_process(state: TrainingState) -> SeenProcess:
    """The process with the smallest pid."""
    return min(state.processes, key=lambda process: process.pid)


def report(
    name: str, choice: JobChoice | None = None, *, is_job: bool = False, ranks: int | None = None, **more: Any
) -> WhyReport:
    """The report on a recorded run."""
    return report_on(seen(name, is_job=is_job, ranks=ranks), choice or JobChoice(), circumstances(**more))
