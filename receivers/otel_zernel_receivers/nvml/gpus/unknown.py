"""A GPU that was lost before the collector started: the driver lists its index, but does not return its uuid."""

from otel_zernel.batch import Batch
from otel_zernel.clock import Clock
from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.nvml.gpus.identity import OF_POINTS
from otel_zernel_receivers.nvml.points.encoding import Encoder
from otel_zernel_receivers.nvml.readings.status import status_points


class UnknownGpu:
    """Reports `hw.status` of an index until its GPU is known. Used by one thread at a time."""

    def __init__(self, index: int, hostname: str, clock: Clock) -> None:
        resource: dict[str, AttributeValue] = {
            "host.name": hostname,
            "hw.type": "gpu",
            "hw.vendor": "NVIDIA",
            "hw.id": str(index),  # unique on its host only
            "hw.name": f"GPU {index}",
            semconv.GPU_INDEX: index,
        }
        self._encoder = Encoder(resource, {name: resource[name] for name in OF_POINTS if name in resource})
        self._clock = clock
        self._is_reported = False

    def failed_batch(self) -> Batch:
        """The status `failed`."""
        self._is_reported = True
        return self._encoder.numbers(status_points("failed"), self._clock.time_ns())

    def end(self) -> Batch:
        """The end of its series, once: its GPU is known, or does not belong to this container."""
        if not self._is_reported:
            return Batch()
        self._is_reported = False
        return self._encoder.ends(status_points("failed"), self._clock.time_ns())
