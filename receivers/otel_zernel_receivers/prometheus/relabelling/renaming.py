"""The OpenTelemetry metric for a Prometheus metric: by the user's mapping, or by a preset."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from otel_zernel.otlp.points import MetricKind
from otel_zernel_receivers.prometheus.config.receiver import RenameConfig


@dataclass(frozen=True, slots=True)
class Renamed:
    """The name, and everything else that changes."""

    name: str
    unit: str | None = None
    """None for that of the page."""
    kind: MetricKind | None = None
    """None for that of the page. Only numbers change their kind."""
    scale: float = 1.0
    attributes: Mapping[str, str] = field(default_factory=dict)
    maybe_percent: bool = False
    """Whether values may be per cent, although the scale is that of a ratio. A value above 1 proves it."""
    of_gpu: bool = False
    """Whether the labels are those of dcgm-exporter."""


class Renames:
    """The mapping of all jobs."""

    def __init__(self, rename: Mapping[str, RenameConfig], presets: Sequence[str]) -> None:
        self._by_name: dict[str, Renamed] = _dcgm() if "dcgm-exporter" in presets else {}
        self._by_name |= {name: _configured(entry, self._by_name.get(name)) for name, entry in rename.items()}

    def of(self, family: str, sample: str) -> Renamed | None:
        """The metric for a family, or for the name of its samples (`http_requests_total`)."""
        return self._by_name.get(family) or self._by_name.get(sample)


def _configured(config: RenameConfig, preset: Renamed | None) -> Renamed:
    return Renamed(
        config.name,
        config.unit,
        config.type,
        config.scale,
        config.attributes,
        of_gpu=preset is not None and preset.of_gpu,
    )


def _dcgm() -> dict[str, Renamed]:
    from otel_zernel_libraries.gpu_names.newer_dcgm import (
        MEASURES,  # importing it takes time, and few receivers need it
    )

    return {
        name: Renamed(
            measure.descriptor.name,
            measure.descriptor.unit,
            measure.descriptor.kind,
            measure.scale,
            {key: str(value) for key, value in measure.attributes.items()},
            measure.maybe_percent,
            of_gpu=True,
        )
        for name, measure in MEASURES.items()
    }
