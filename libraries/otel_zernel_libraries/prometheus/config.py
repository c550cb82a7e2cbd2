"""The parts of the configuration that exporters of Prometheus' formats share: labels of resources, label names."""

import re
from typing import Annotated

from pydantic import AfterValidator

from otel_zernel.component import ComponentConfig
from otel_zernel_libraries.training import semconv


def _label(name: str) -> str:
    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name) or name.startswith("__"):
        raise ValueError(
            f"{name!r} is not a valid label name: use letters, digits and _, with no digit and no __ at the beginning"
        )
    return name


LabelName = Annotated[str, AfterValidator(_label)]


class ResourceLabelsConfig(ComponentConfig):
    """Which resource attributes become labels of every series."""

    included: tuple[str, ...] = ()
    """Attribute names or globs (`k8s.*`)."""
    excluded: tuple[str, ...] = ()
    """Attribute names or globs to exclude. Without `included`, all others become labels."""


IDENTITY = (
    *("host.name", "process.executable.name", semconv.RANK, semconv.JOB_ID),
    *("k8s.namespace.name", "k8s.pod.name", "k8s.container.name"),
    *("hw.type", "hw.name", "hw.model", "hw.parent", semconv.GPU_INDEX),
)
"""The resource attributes that say which host, process, rank, job, pod or GPU a series is about."""
