"""Prometheus remote write: OTLP metrics as series with timestamps, and the requests of protocols 1.0 and 2.0."""

from otel_zernel_exporters.prometheusremotewrite.protocol.requests import EncodedWrite, Encoding, in_waves
from otel_zernel_exporters.prometheusremotewrite.protocol.series import Entry, WrittenSample, WrittenSeries
from otel_zernel_exporters.prometheusremotewrite.protocol.translation import Translation, with_classic_histograms
from otel_zernel_exporters.prometheusremotewrite.protocol.version_1 import Version1
from otel_zernel_exporters.prometheusremotewrite.protocol.version_2 import Version2

__all__ = [
    "EncodedWrite",
    "Encoding",
    "Entry",
    "Translation",
    "Version1",
    "Version2",
    "WrittenSample",
    "WrittenSeries",
    "in_waves",
    "with_classic_histograms",
]
