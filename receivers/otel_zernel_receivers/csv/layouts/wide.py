"""The wide layout of small GPU loggers: one row per GPU and time, one column per metric."""

from collections.abc import Mapping

from otel_zernel.otlp.points import Series, encode_point_attributes, encode_resource
from otel_zernel_libraries.gpu_names.dcgm import FIELDS
from otel_zernel_libraries.gpu_names.dcgm_blanks import blank_from
from otel_zernel_receivers.csv.layouts.gpu import gpu_resource
from otel_zernel_receivers.csv.layouts.layout import SCOPE, CsvLayout, CsvSeries

# The columns have the meaning and the units of DCGM's fields.
_FIELDS = {
    "gpu_utilization": "DCGM_FI_DEV_GPU_UTIL",
    "memory_utilization": "DCGM_FI_DEV_MEM_COPY_UTIL",
    "memory_used_mb": "DCGM_FI_DEV_FB_USED",
    "memory_free_mb": "DCGM_FI_DEV_FB_FREE",
    "temperature": "DCGM_FI_DEV_GPU_TEMP",
    "power_draw": "DCGM_FI_DEV_POWER_USAGE",
    "sm_clock_mhz": "DCGM_FI_DEV_SM_CLOCK",
    "memory_clock_mhz": "DCGM_FI_DEV_MEM_CLOCK",
}


class WideLayout(CsvLayout):
    """`layout: wide`."""

    name = "wide"
    timestamp = "timestamp"
    required = ("gpu_id", "hostname")
    optional = ("uuid",)
    numbers = tuple(_FIELDS)
    requires_all_numbers = False
    sparse = True

    def series(self, texts: Mapping[str, str], number: str) -> CsvSeries:
        uuid, index = texts.get("uuid", ""), texts["gpu_id"]
        resource = gpu_resource(uuid=uuid, index=index, model="", hostname=texts["hostname"])
        measure = FIELDS[_FIELDS[number]]
        attributes = encode_point_attributes({"hw.id": uuid or index, **measure.attributes})
        series = Series(encode_resource(resource), SCOPE, measure.descriptor, attributes)
        return CsvSeries(series, measure.scale, blank_from=blank_from(_FIELDS[number]))
