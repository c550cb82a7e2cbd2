"""The kinds of metrics in OTLP."""

from typing import Literal

MetricKind = Literal["gauge", "sum", "up_down", "histogram", "exponential_histogram", "summary"]
