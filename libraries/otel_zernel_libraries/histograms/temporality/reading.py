"""Reads the amount in a point of any kind."""

from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    NumberDataPoint,
    SummaryDataPoint,
)

from otel_zernel_libraries.histograms.amounts import Amount, MalformedAmount, NumberAmount, SummaryAmount
from otel_zernel_libraries.histograms.explicit import ExplicitAmount
from otel_zernel_libraries.histograms.exponential import ExponentialAmount

_KINDS: Final[Mapping[type[Any], type[Amount]]] = {
    NumberDataPoint: NumberAmount,
    HistogramDataPoint: ExplicitAmount,
    ExponentialHistogramDataPoint: ExponentialAmount,
    SummaryDataPoint: SummaryAmount,
}


def amount_of(point: Any, *, monotonic: bool = True) -> Amount:
    """The amount in a point. Raises `MalformedAmount`."""
    try:
        return _KINDS[type(point)].of(point, monotonic=monotonic)
    except OverflowError:
        raise MalformedAmount from None
