"""The SDK that collects the collector's own metrics, from the first collection on."""

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from opentelemetry.metrics import MeterProvider

from otel_zernel.runtime.garbage import collection_deferred
from otel_zernel.telemetry.deferred import DeferredMeterProvider

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricsData


class MeterCollection:
    """The meters of one resource, and the present values of their instruments."""

    def __init__(self, resource: Mapping[str, str]) -> None:
        """`resource` has the attributes of the collector."""
        self.meters = DeferredMeterProvider(self._make)
        self._resource = resource
        self._reader: InMemoryMetricReader | None = None
        self._turn = threading.Lock()

    def collect(self) -> "MetricsData | None":
        """The present values, None if there are none. Several readers, some in threads, share the collection.

        The first call imports the SDK, which takes 35 ms of CPU time.
        """
        self.meters.provide()
        with self._turn:
            return self._reader.get_metrics_data() if self._reader else None

    def _make(self) -> MeterProvider:
        with collection_deferred():  # modules and classes are no garbage
            from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
            from opentelemetry.sdk.metrics.export import InMemoryMetricReader
            from opentelemetry.sdk.resources import Resource

        self._reader = InMemoryMetricReader()
        resource = Resource.create(dict(self._resource))
        return SdkMeterProvider(metric_readers=[self._reader], resource=resource, shutdown_on_exit=False)
