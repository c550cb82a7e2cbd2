"""Writes the table of dcgm-exporter's names into the README of the prometheus exporter. `make docs` runs it."""

import re
from dataclasses import replace
from pathlib import Path

from otel_zernel_exporters.prometheus.dcgm import COUNTERS, LABELS
from otel_zernel_exporters.prometheus.dcgm_sums import SUMMED
from otel_zernel_libraries.gpu_names.dcgm import FIELDS, Measure
from otel_zernel_libraries.gpu_names.dcgm_fields import field_unit
from otel_zernel_receivers.nvml.points.metrics import METRICS
from otel_zernel_receivers.nvml.readings.board import BOARD
from otel_zernel_receivers.nvml.readings.fields import FIELDS as NVML_FIELDS
from otel_zernel_receivers.nvml.readings.gpm import GPM_METRICS
from otel_zernel_receivers.nvml.readings.link_fields import NVLINK_FIELDS

README = Path(__file__).parent.parent / "exporters" / "otel_zernel_exporters" / "prometheus" / "README.md"
FENCE = re.compile(r"(<!-- dcgm: [^>]*-->\n).*?(<!-- end of dcgm -->)", re.DOTALL)

_SERIES = [
    *(one for query in BOARD for one in query.series),
    *(field.series for field in NVML_FIELDS),
    *(field.series for field in NVLINK_FIELDS),
    *GPM_METRICS.values(),
]
"""The series that the nvml receiver reads, besides the few without attributes that it calculates."""


def written_into(readme: str) -> str:
    """The README with current tables."""
    return FENCE.sub(lambda fence: f"{fence[1]}\n{_labels()}\n{_fields()}\n{fence[2]}", readme)


def _labels() -> str:
    rows = [f"| `{label}` | {_either(attributes)} |" for label, attributes in LABELS.items()]
    return "\n".join(["| label | attribute |", "|---|---|", *rows, ""])


def _either(attributes: tuple[str, ...]) -> str:
    return ", else ".join(f"`{attribute}`" for attribute in attributes)


def _fields() -> str:
    rows = [_row(field, measure) for field, measure in FIELDS.items()]
    return "\n".join(
        ["| dcgm-exporter | type | unit | metric | unit | in nvml |", "|---|---|---|---|---|---|", *rows, ""]
    )


def _row(field: str, measure: Measure) -> str:
    descriptor = measure.descriptor
    attributes = ", ".join(f"{name}={value}" for name, value in measure.attributes.items())
    metric = f"`{descriptor.name}`" + (f" {{{attributes}}}" if attributes else "")
    type_ = "counter" if descriptor.kind == "sum" or field in COUNTERS else "gauge"
    cells = (f"`{field}`", type_, field_unit(measure), metric, descriptor.unit, _in_nvml(measure))
    return f"| {' | '.join(cells)} |"


def _in_nvml(measure: Measure) -> str:
    name = measure.descriptor.name
    if name in SUMMED:  # of the directions, which are series of the receiver
        measure = replace(measure, attributes={})
    if name not in METRICS:
        return "no"
    series = [dict(one.attributes) for one in _SERIES if one.metric == name]
    if series and not any(measure.attributes.items() <= attributes.items() for attributes in series):
        return "no"
    return "yes" if METRICS[name].enabled else "off by default"


def main() -> None:
    """Updates the README in place."""
    README.write_text(written_into(README.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
