"""Prometheus remote write: OTLP metrics as series with timestamps, and the requests of protocols 1.0 and 2.0."""

from otel_zernel_exporters.prometheusremotewrite.protocol.requests import EncodedWrite as EncodedWrite
from otel_zernel_exporters.prometheusremotewrite.protocol.requests import Encoding as Encoding
from otel_zernel_exporters.prometheusremotewrite.protocol.requests import in_waves as in_waves
from otel_zernel_exporters.prometheusremotewrite.protocol.series import Entry as Entry
from otel_zernel_exporters.prometheusremotewrite.protocol.series import WrittenSample as WrittenSample
from otel_zernel_exporters.prometheusremotewrite.protocol.series import WrittenSeries as WrittenSeries
from otel_zernel_exporters.prometheusremotewrite.protocol.translation import Translation as Translation
from otel_zernel_exporters.prometheusremotewrite.protocol.translation import (
    with_classic_histograms as with_classic_histograms,
)
from otel_zernel_exporters.prometheusremotewrite.protocol.version_1 import Version1 as Version1
from otel_zernel_exporters.prometheusremotewrite.protocol.version_2 import Version2 as Version2
