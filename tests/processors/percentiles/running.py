"""A percentiles processor under test, and input batches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, SummaryDataPoint
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel.otlp.points import (
    Attributes,
    Descriptor,
    Scope,
    encode_metric,
    encode_point_attributes,
    encode_resource,
    encode_resource_metrics,
)
from otel_zernel.testing import Dropped, FakeClock, make_context
from otel_zernel_libraries.arrays import encode_number_points
from otel_zernel_processors.percentiles import PercentilesProcessor
from tests.core.parts import metrics_of
from tests.otlp import data

RESOURCE: Attributes = {"host.name": "node-1", "gpu": 3}


def gauge(
    values: Sequence[float],
    attributes: Attributes | None = None,
    *,
    name: str = "latency",
    unit: str = "s",
    resource: Attributes = RESOURCE,
) -> Batch:
    """A batch of one gauge with one series."""
    points = encode_number_points(
        encode_point_attributes(attributes or {}), np.full(len(values), 7, np.uint64), np.array(values, np.float64)
    )
    metric = encode_metric(Descriptor(name, unit, description="How long."), points)
    encoded = encode_resource_metrics(encode_resource(resource), Scope("test", "1"), [metric])
    return Batch.from_bytes(metrics=encoded)


def quantiles(point: SummaryDataPoint) -> dict[float, float]:
    return {at.quantile: at.value for at in point.quantile_values}


SUMMARIES: Mapping[str, Any] = {"outputs": ["summary"], "suffix": ""}


@dataclass
class RunningProcessor:
    """A percentiles processor with a fake clock and its own metrics. Without `outputs` it emits summaries."""

    options: dict[str, Any] = field(default_factory=dict)
    clock: FakeClock = field(default_factory=FakeClock)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)
    context: Context = field(init=False)
    processor: PercentilesProcessor = field(init=False)

    def __post_init__(self) -> None:
        meter = MeterProvider([self.reader], shutdown_on_exit=False).get_meter("test")
        self.context = make_context("processors", "percentiles", clock=self.clock, meter=meter)
        defaults = {} if "outputs" in self.options else SUMMARIES
        config = PercentilesProcessor.Config.model_validate({**defaults, **self.options})
        self.processor = PercentilesProcessor(config, self.context)

    @property
    def dropped(self) -> dict[str, int]:
        assert isinstance(self.context.drop, Dropped)
        return dict(self.context.drop.counts)

    @property
    def clamped(self) -> int:
        """The value of `zernel.percentiles.clamped`."""
        data = self.reader.get_metrics_data()
        if data is None:
            return 0
        [metric] = data.resource_metrics[0].scope_metrics[0].metrics
        return sum(int(point.value) for point in metric.data.data_points if isinstance(point, NumberDataPoint))

    def process(self, *given: Batch | Metric) -> list[Batch]:
        """Processes batches, and metrics in a batch each."""
        batches = (part if isinstance(part, Batch) else Batch(metrics=data(part)) for part in given)
        return [out for batch in batches for out in self.processor.process(batch)]

    def tick(self, seconds: float = 10) -> list[Metric]:
        self.clock.advance(seconds)
        return metrics_of(self.processor.tick(self.clock.time_ns()))

    def points(self, seconds: float = 10) -> list[SummaryDataPoint]:
        """The summary points of the next tick."""
        return [point for metric in self.tick(seconds) for point in metric.summary.data_points]

    def point(self, seconds: float = 10) -> SummaryDataPoint:
        """The only summary point of the next tick."""
        [point] = self.points(seconds)
        return point


def fed(*given: Batch | Metric, **options: Any) -> RunningProcessor:
    """A processor with these options that has processed batches, and metrics in a batch each."""
    running = RunningProcessor(options)
    running.process(*given)
    return running
