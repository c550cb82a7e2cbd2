"""The collector's own telemetry: instruments (its metrics), readers (serve or send the metrics) and logs."""

from otel_zernel.telemetry.instruments import ExporterMetrics as ExporterMetrics
from otel_zernel.telemetry.instruments import Instruments as Instruments
from otel_zernel.telemetry.instruments import ItemCounter as ItemCounter
from otel_zernel.telemetry.instruments import MeasuredQueue as MeasuredQueue
from otel_zernel.telemetry.instruments import ProcessorMetrics as ProcessorMetrics
from otel_zernel.telemetry.instruments import ReceiverMetrics as ReceiverMetrics
from otel_zernel.telemetry.instruments import ScraperMetrics as ScraperMetrics
