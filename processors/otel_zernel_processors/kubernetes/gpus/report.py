"""The metric that joins GPUs and pods."""

from collections.abc import Iterable, Mapping

from otel_zernel.batch import Batch
from otel_zernel.otlp import points as otlp
from otel_zernel.otlp.staleness import encode_staleness
from otel_zernel.protobuf import delimited
from otel_zernel_processors.kubernetes.declared import GPU_POD

SCOPE = otlp.Scope("otel_zernel_processors.kubernetes")
_DESCRIPTOR = otlp.Descriptor(GPU_POD.name, GPU_POD.unit, "gauge", GPU_POD.description)


class GpuPodReport:
    """One point for each holder of a GPU, and staleness points for those that hold it no more."""

    def __init__(self, resource: Mapping[str, str]) -> None:
        self._resource = otlp.encode_resource(resource)
        self._series: set[bytes] = set()

    def batch(self, holders: Iterable[Mapping[str, str]], now_ns: int) -> Batch | None:
        """The batch for holders with these attributes. None if there is nothing to report."""
        present = {otlp.encode_point_attributes(attributes) for attributes in holders}
        period = otlp.Period(0, now_ns)
        points = [otlp.encode_number_point(one, 1, period) for one in sorted(present)]
        ends = [delimited(1, one + encode_staleness("gauge", now_ns)) for one in sorted(self._series - present)]
        self._series = present
        if not (points or ends):
            return None
        metric = otlp.encode_metric(_DESCRIPTOR, b"".join((*points, *ends)))
        encoded = otlp.encode_resource_metrics(self._resource, SCOPE, [metric])
        return Batch.encoded("metrics", encoded, len(points) + len(ends))
