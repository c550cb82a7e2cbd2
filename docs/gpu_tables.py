"""The tables of GPU names and states in the READMEs of csv, nvml and prometheus, which only the site shows."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from docs.fences import table, written_into
from otel_zernel_exporters.prometheus.dcgm import COUNTERS, LABELS
from otel_zernel_exporters.prometheus.dcgm_sums import SUMMED
from otel_zernel_libraries.gpu_names import nvidia_smi
from otel_zernel_libraries.gpu_names.dcgm import FIELDS, Measure
from otel_zernel_libraries.gpu_names.dcgm_fields import field_unit
from otel_zernel_receivers.nvml.points.metrics import METRICS
from otel_zernel_receivers.nvml.readings.board import BOARD
from otel_zernel_receivers.nvml.readings.fields import FIELDS as NVML_FIELDS
from otel_zernel_receivers.nvml.readings.gpm import GPM_METRICS
from otel_zernel_receivers.nvml.readings.link_fields import NVLINK_FIELDS
from otel_zernel_receivers.nvml.readings.status import RULES

_SERIES = [
    *(series for query in BOARD for series in query.series),
    *(field.series for field in NVML_FIELDS),
    *(field.series for field in NVLINK_FIELDS),
    *GPM_METRICS.values(),
]
"""The series that the nvml receiver reads, besides the few without attributes that it calculates."""


def nvml_states() -> str:
    """The rules for `hw.status`, in their order."""
    first = ("failed", "the GPU is lost, requires a reset, answers none of its queries, or had a fatal XID")
    rules = [(state, condition) for state, condition, _ in RULES]
    return table(["hw.state", "when"], [first, *rules, ("ok", "otherwise")])


def dcgm_names() -> str:
    """The labels and the fields of dcgm-exporter, and what they are here."""
    labels = [(f"`{label}`", _either(attributes)) for label, attributes in LABELS.items()]
    fields = _numbered_once([_field(field, measure) for field, measure in FIELDS.items()])
    head = ["dcgm-exporter", "type", "unit", "metric", "unit", "in nvml"]
    return f"{table(['label', 'attribute'], labels)}\n{table(head, fields)}"


def _numbered_once(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Rows for the numbered links of a GPU are one row, with the range of their numbers."""
    together: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for row in rows:
        number = re.search(r"_L(\d+)`$", row[0])
        key = tuple(re.sub(rf"(_L|link=){number[1]}\b", r"\1N", cell) for cell in row) if number else row
        together.setdefault(key, []).append(row)
    return [
        (f"{alike[0][0]} to `_L{len(alike) - 1}`", *key[1:]) if len(alike) > 1 else alike[0]
        for key, alike in together.items()
    ]


def _either(attributes: tuple[str, ...]) -> str:
    return ", else ".join(f"`{attribute}`" for attribute in attributes)


def _field(field: str, measure: Measure) -> tuple[str, ...]:
    descriptor = measure.descriptor
    attributes = ", ".join(f"{name}={value}" for name, value in measure.attributes.items())
    metric = f"`{descriptor.name}`" + (f" {{{attributes}}}" if attributes else "")
    type_ = "counter" if descriptor.kind == "sum" or field in COUNTERS else "gauge"
    return (f"`{field}`", type_, field_unit(measure), metric, descriptor.unit, _in_nvml(measure))


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


def nvidia_smi_fields() -> str:
    """A row for each metric: the fields, the unit, and the values of the attributes."""
    ordered = list(nvidia_smi.FIELDS.values())
    metrics = dict.fromkeys(field.measure.descriptor.name for field in ordered)
    rows = [_metric(name, [field for field in ordered if field.measure.descriptor.name == name]) for name in metrics]
    return table(["fields of --query-gpu", "metric", "unit", "attributes"], rows)


def _metric(name: str, fields: list[nvidia_smi.Field]) -> tuple[str, ...]:
    attributes = dict.fromkeys(attribute for field in fields for attribute in field.measure.attributes)
    columns = ", ".join(f"`{column}`" for column in _joined([field.column for field in fields]))
    return columns, name, fields[0].measure.descriptor.unit, ", ".join(attributes)


def _joined(columns: list[str]) -> list[str]:
    """The columns; those that differ in the last part as one: `utilization.{gpu,encoder}`."""
    parts = [column.rpartition(".") for column in dict.fromkeys(columns)]
    joined = []
    for prefix, group in groupby(parts, key=lambda part: part[0]):
        last = [part[2] for part in group]
        joined.append(f"{prefix}.{{{','.join(last)}}}" if len(last) > 1 else f"{prefix}.{last[0]}".lstrip("."))
    return joined


_ROOT = Path(__file__).parent.parent
TABLES: dict[str, tuple[Path, Callable[[], str]]] = {
    "nvidia-smi": (_ROOT / "receivers/otel_zernel_receivers/csv/README.md", nvidia_smi_fields),
    "status": (_ROOT / "receivers/otel_zernel_receivers/nvml/README.md", nvml_states),
    "dcgm": (_ROOT / "exporters/otel_zernel_exporters/prometheus/README.md", dcgm_names),
}
"""The README of each table."""


def filled(page: Path, text: str) -> str:
    """The text of a page with its tables."""
    for name, (readme, content) in TABLES.items():
        if readme == page:
            text = written_into(text, name, content())
    return text
