"""Labels: the attributes of a series and of its resource as text, under their own names and under short ones."""

import json
from collections.abc import Mapping
from typing import Any, Final

from otel_zernel_libraries.training import semconv

SHORT_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "host_id": ("host.name",),
    "gpu_id": (semconv.GPU_INDEX, "hw.id"),
    "uuid": ("hw.id",),
    "model": ("hw.model", "hw.name"),
    "job": (semconv.JOB_ID, "k8s.job.name"),
}
"""The attributes that a short name stands for. The first that a series has is its value."""
_ALTERNATIVES: Final = ("gpu_id",)
"""A filter by these accepts each of the attributes: `gpu_id=0` and `gpu_id=GPU-5fd4f087-...`."""

Attributes = Mapping[str, Any]


def label_text(value: Any) -> str:
    """The text of an attribute: `true`, `17`, and JSON for lists and maps."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def label_of(name: str, *attributes: Attributes) -> str | None:
    """The text of the first attribute that exists; None if none does. The mappings are searched in their order."""
    for key in SHORT_NAMES.get(name, (name,)):
        for some in attributes:
            if some.get(key) is not None:
                return label_text(some[key])
    return None


def has_label(name: str, wanted: frozenset[str], *attributes: Attributes) -> bool:
    """Whether a filter by this label accepts the attributes."""
    keys = SHORT_NAMES[name] if name in _ALTERNATIVES else (name,)
    return any(label_of(key, *attributes) in wanted for key in keys)
