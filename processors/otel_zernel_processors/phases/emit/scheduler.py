"""The metrics of a host as a whole, under the names that dashboards of schedulers use."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel_libraries.training import PHASES, semconv
from otel_zernel_processors.phases.emit.metrics import MetricWriter, Value
from otel_zernel_processors.phases.results.totals import PhaseTotals


class Task(NamedTuple):
    """One process of the host."""

    is_ml: bool
    """Whether it uses PyTorch, CUDA or NCCL."""
    phase: str
    window: PhaseTotals


def scheduler_metrics(tasks: Sequence[Task], transitions: int, since: int, now: int) -> list[Metric]:
    """The metrics with the time `now` (ns). `transitions` counts those of all processes since `since` (ns)."""
    writer = MetricWriter({}, since, now)
    ml = [task for task in tasks if task.is_ml]
    phases = Counter(task.phase for task in ml)
    spent: Counter[str] = Counter()
    for task in ml:
        spent.update(task.window.phase_ns)
    whole = spent.total()
    counts: list[Value] = [({"type": "total"}, len(tasks)), ({"type": "ml"}, len(ml))]
    writer.gauge(semconv.SCHEDULER_TASKS, "", counts)
    writer.sum(semconv.SCHEDULER_PHASE_TRANSITIONS, "", [({}, transitions)])
    writer.gauge(semconv.SCHEDULER_PHASE_TASKS, "", [({"phase": phase}, phases[phase]) for phase in PHASES])
    shares: list[Value] = [({"phase": phase}, 100.0 * spent[phase] / whole if whole else 0.0) for phase in PHASES]
    writer.gauge(semconv.SCHEDULER_PHASE_TIME_PCT, "", shares)
    return writer.metrics
