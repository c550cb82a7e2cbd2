"""Runs the csv receiver and returns its output as plain values."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from otel_zernel.batch import points
from otel_zernel.component import Context
from otel_zernel.testing import Downstream, Dropped, make_context
from otel_zernel_receivers.csv import CsvReceiver
from tests.otlp import metrics_in

PlainPoint = tuple[str, int, float]
"""Metric, time in ns, value."""


@dataclass
class Run:
    """The output of one run of the receiver."""

    downstream: Downstream
    context: Context

    @property
    def dropped(self) -> dict[str, int]:
        assert isinstance(self.context.drop, Dropped)
        return dict(self.context.drop.counts)

    @property
    def points(self) -> list[PlainPoint]:
        return points_of(self.downstream)


def points_of(downstream: Downstream) -> list[PlainPoint]:
    """Every point, in the order of the batches."""
    return [
        (metric.name, point.time_unix_nano, point.as_double)
        for batch in downstream.batches
        for metric in metrics_in(batch.metrics)
        for point in points(metric)
    ]


def attributes(message: Any) -> dict[str, Any]:
    """The attributes of a resource or a point as plain values."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in message.attributes}


def receiver(context: Context | None = None, **config: Any) -> CsvReceiver:
    return CsvReceiver(CsvReceiver.Config.model_validate(config), context or make_context(id_="csv"))


Receive = Callable[..., Coroutine[Any, Any, Run]]
