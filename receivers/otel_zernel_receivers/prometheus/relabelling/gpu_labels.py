"""The labels of dcgm-exporter as attributes, by the semantic conventions for hardware."""

from collections.abc import Mapping
from typing import Final

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.gpu_names.dcgm import KUBERNETES
from otel_zernel_libraries.gpu_names.dcgm_blanks import TEXTS
from otel_zernel_libraries.gpu_names.newer_dcgm import NEWER_LABELS
from otel_zernel_libraries.training import semconv

Attributes = dict[str, AttributeValue]

_RESOURCE: Final[Mapping[str, str]] = {
    "Hostname": "host.name",
    "UUID": "hw.id",
    "modelName": "hw.model",
    "device": semconv.GPU_DEVICE,
    "DCGM_FI_DRIVER_VERSION": "hw.driver_version",
    **KUBERNETES,
}
_OF_POINTS: Final = ("hw.id", "hw.type", "hw.name", "hw.model", semconv.GPU_INDEX)
"""The attributes of the resource that every point repeats, as the nvml receiver does."""


def split_labels(labels: Mapping[str, str]) -> tuple[Attributes, Attributes]:
    """The attributes of the GPU's resource and those of the point. Unknown labels stay with the point."""
    older = {NEWER_LABELS.get(name, name): value for name, value in labels.items() if value not in TEXTS}
    resource: Attributes = {"hw.type": "gpu", "hw.vendor": "NVIDIA"}
    if index := older.pop("gpu", ""):
        resource[semconv.GPU_INDEX] = int(index) if index.isascii() and index.isdecimal() and len(index) < 10 else index
        resource["hw.name"] = f"GPU {index}"
        resource["hw.id"] = index  # unique on its host only; the UUID replaces it
    resource |= {_RESOURCE[name]: value for name, value in older.items() if name in _RESOURCE}
    point: Attributes = {name: value for name, value in older.items() if name not in _RESOURCE}
    return resource, point | {name: resource[name] for name in _OF_POINTS if name in resource}
