"""Emits the workers' metrics, each with a resource of its own.

A few are encoded at a time: heartbeats have to be answered meanwhile.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from otel_zernel.batch import Batch
from otel_zernel.clock import Clock
from otel_zernel.component import Emit
from otel_zernel.errors import Refused, Rejected
from otel_zernel.otlp import points as otlp
from otel_zernel.otlp.staleness import encode_staleness
from otel_zernel.protobuf import delimited
from otel_zernel_receivers.heartbeat.fleet.descriptors import ACTIVE, CAPACITIES, LAST_SEEN, USAGES, WorkerMetric
from otel_zernel_receivers.heartbeat.fleet.fleet import Fleet
from otel_zernel_receivers.heartbeat.fleet.worker import Worker, WorkerSample

_SCOPE: Final = otlp.Scope("otel_zernel_receivers.heartbeat")
_CUMULATIVE: Final = frozenset({2})
"""The temporality of the sums: `AGGREGATION_TEMPORALITY_CUMULATIVE`."""
_ATTRIBUTES: Final = {
    metric: otlp.encode_attributes(dict(metric.attributes), otlp.NUMBER_ATTRIBUTES)
    for metric in (*USAGES.values(), ACTIVE, LAST_SEEN, *CAPACITIES.values())
}


@dataclass(frozen=True, slots=True)
class WorkerPoints:
    """The encoded metrics of one worker, and the number of their points."""

    encoded: bytes
    count: int


def batch_of(parts: Iterable[WorkerPoints]) -> Batch:
    """One batch with the metrics of several workers."""
    parts = list(parts)
    data = b"".join(part.encoded for part in parts)
    return Batch.encoded("metrics", data, sum(part.count for part in parts), _CUMULATIVE)


def points_of(worker: Worker, time_ns: int) -> WorkerPoints:
    """The points of a worker: one for each heartbeat that waits, and its state now."""
    metrics = list(_usages(worker))
    if not metrics and worker.stale:
        metrics = [_ended(metric, time_ns) for metric in _shown(worker)]
    count = len(worker.samples) * len(metrics) or len(metrics)
    state = [_one(ACTIVE, int(worker.active), time_ns)]
    if worker.seen_ns:
        state.append(_one(LAST_SEEN, worker.seen_ns / 1e9, time_ns))
    state += [_one(metric, round(value), time_ns) for metric, value in _capacities(worker)]
    encoded = otlp.encode_resource_metrics(worker.resource, _SCOPE, [*metrics, *state])
    return WorkerPoints(encoded, count + len(state))


def ends_of(worker: Worker, time_ns: int) -> WorkerPoints:
    """Staleness points for all series of a removed worker."""
    series = [*_shown(worker), ACTIVE, LAST_SEEN, *(metric for metric, _ in _capacities(worker))]
    encoded = otlp.encode_resource_metrics(worker.resource, _SCOPE, [_ended(metric, time_ns) for metric in series])
    return WorkerPoints(encoded, len(series))


def _usages(worker: Worker) -> Iterator[bytes]:
    """The metrics of the heartbeats that wait."""
    if not worker.samples:
        return
    periods = [otlp.Period(0, sample.time_ns) for sample in worker.samples]
    for name, metric in USAGES.items():
        if name == "gpu" and _has_no_gpu(worker):
            continue
        pick = _PICK[name]
        values = zip(worker.samples, periods, strict=True)
        points = [otlp.encode_number_point(_ATTRIBUTES[metric], pick(sample), period) for sample, period in values]
        yield otlp.encode_metric(metric.descriptor, b"".join(points))


_PICK: Final[dict[str, Callable[[WorkerSample], float]]] = {
    "cpu": lambda sample: sample.cpu,
    "memory": lambda sample: sample.memory,
    "storage": lambda sample: sample.storage,
    "gpu": lambda sample: sample.gpu,
    "tasks": lambda sample: sample.tasks,
}


def _shown(worker: Worker) -> Iterator[WorkerMetric]:
    return (metric for name, metric in USAGES.items() if name != "gpu" or not _has_no_gpu(worker))


def _has_no_gpu(worker: Worker) -> bool:
    """Whether the worker has registered without GPUs, so that its usage of 0 means nothing."""
    return worker.capacities is not None and worker.capacities.total_gpu == 0


def _capacities(worker: Worker) -> Iterator[tuple[WorkerMetric, float]]:
    if worker.capacities:
        for field, metric in CAPACITIES.items():
            if (value := getattr(worker.capacities, field)) > 0:
                yield metric, value


def _one(metric: WorkerMetric, value: float, time_ns: int) -> bytes:
    return otlp.encode_metric(
        metric.descriptor, otlp.encode_number_point(_ATTRIBUTES[metric], value, otlp.Period(0, time_ns))
    )


def _ended(metric: WorkerMetric, time_ns: int) -> bytes:
    point = _ATTRIBUTES[metric] + encode_staleness(metric.descriptor.kind, time_ns)
    return otlp.encode_metric(metric.descriptor, delimited(1, point))


_AT_ONCE: Final = 10
"""Workers that are encoded in one turn of the event loop. Each takes 40 us."""
_BATCH: Final = 200
"""Workers in one batch."""


class Emission:
    """Turns the waiting heartbeats into batches."""

    def __init__(self, fleet: Fleet, clock: Clock, drop: Callable[[int, str], None]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._drop = drop

    async def emit(self, emit: Emit) -> None:
        """Emits every worker once. A batch that the pipelines refuse is dropped and counted."""
        waiting: list[WorkerPoints] = []
        for number, points in enumerate(self._points(), 1):
            waiting.append(points)
            if len(waiting) == _BATCH:
                await self._send(emit, batch_of(waiting))
                waiting = []
            elif number % _AT_ONCE == 0:
                await self._clock.sleep(0)
        if waiting:
            await self._send(emit, batch_of(waiting))

    def _points(self) -> Iterator[WorkerPoints]:
        forgotten, self._fleet.forgotten = self._fleet.forgotten, []
        for worker in forgotten:
            yield ends_of(worker, self._clock.time_ns())
        for worker in list(self._fleet.workers.values()):
            yield points_of(worker, self._clock.time_ns())
            worker.samples.clear()
            worker.stale = False

    async def _send(self, emit: Emit, batch: Batch) -> None:
        try:
            await emit(batch, transport="grpc")
        except (Refused, Rejected):
            self._drop(batch.point_count, "refused")
