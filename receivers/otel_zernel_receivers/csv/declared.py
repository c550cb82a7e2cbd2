"""The metrics of the receiver: those of the rows in its GPU layouts, and those about itself."""

from collections.abc import Iterator

from otel_zernel.component.declaration import DeclaredMetric, by_name, own
from otel_zernel_libraries.gpu_names.dcgm import Measure
from otel_zernel_libraries.gpu_names.newer_dcgm import MEASURES
from otel_zernel_libraries.gpu_names.nvidia_smi import FIELDS

MALFORMED_LABELS = own(
    "zernel.csv.malformed_labels",
    "{point}",
    "Points without labels because labels_raw could not be parsed.",
    when="from the first such point on",
)
UNSAVED_REJECTS = own(
    "zernel.csv.unsaved_rejects",
    "{row}",
    "Bad rows that could not be written to the rejects.",
    when="from the first such row on",
)
_NAMED = 3
"""The most fields of a metric that its description names."""


def _rows() -> Iterator[DeclaredMetric]:
    """A metric for each name that fields of DCGM or nvidia-smi become."""
    fields: dict[str, list[tuple[str, Measure]]] = {}
    for name, measure in MEASURES.items():
        fields.setdefault(measure.descriptor.name, []).append((name.removeprefix("DCGM_FI_"), measure))
    for field in FIELDS.values():
        fields.setdefault(field.measure.descriptor.name, []).append((field.column, field.measure))
    for metric, of_metric in fields.items():
        descriptor = of_metric[0][1].descriptor
        names = list(dict.fromkeys(name for name, _ in of_metric))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        attributes = dict.fromkeys(attribute for _, measure in of_metric for attribute in measure.attributes)
        yield DeclaredMetric(
            metric,
            descriptor.unit,
            descriptor.kind,  # type: ignore[arg-type]  # the tables have gauges and sums
            f"From {', '.join(f'`{name}`' for name in names[:_NAMED])}{more}.",
            ("hw.id", *attributes),
            "in files of DCGM or nvidia-smi with such a field",
        )


METRICS = by_name(*_rows(), MALFORMED_LABELS, UNSAVED_REJECTS)
