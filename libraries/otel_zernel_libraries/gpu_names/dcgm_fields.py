"""From metrics to DCGM's fields: the table in `dcgm.py`, read in the other direction.

The csv exporter writes rows by it, and the prometheus exporter names its series by it.
"""

from collections import defaultdict
from collections.abc import Mapping

from otel_zernel.otlp.points import Descriptor
from otel_zernel_libraries.gpu_names.dcgm import ATTRIBUTES, FIELDS, MHZ, MIB, MILLI, NANO, PERCENT, Measure

_BY_METRIC: defaultdict[str, list[tuple[str, Measure]]] = defaultdict(list)
for _field, _measure in FIELDS.items():
    _BY_METRIC[_measure.descriptor.name].append((_field, _measure))

METRICS = frozenset(_BY_METRIC)
"""The names of all metrics that have a field."""

_UNITS = {
    ("1", PERCENT): "%",
    ("1", 1.0): "ratio",
    ("By", MIB): "MiB",
    ("Hz", MHZ): "MHz",
    ("J", MILLI): "mJ",
    ("s", NANO): "ns",
    ("Cel", 1.0): "C",
    ("By/s", 1.0): "B/s",
    ("By/s", 1e3): "KB/s",
    ("By/s", 1024e3): "1000 KiB/s",
}


def field_of(descriptor: Descriptor, attributes: Mapping[str, object]) -> tuple[str, Measure] | None:
    """The DCGM field of a series and its measure; None if DCGM has no such field.

    One direction of the traffic is no field that has both.
    """
    measures = _BY_METRIC.get(descriptor.name)
    if not measures:
        return None
    series = {name: str(value) for name, value in attributes.items() if name in ATTRIBUTES}
    for field, measure in measures:
        own = measure.descriptor
        is_same = (own.unit, own.kind) == (descriptor.unit, descriptor.kind)
        if is_same and {name: str(value) for name, value in measure.attributes.items()} == series:
            return field, measure
    return None


def field_unit(measure: Measure) -> str:
    """The unit of a field's values: `MiB`. Empty for counts and codes."""
    unit = measure.descriptor.unit
    return _UNITS.get((unit, measure.scale), "" if unit.startswith("{") else unit)


def field_value(value: float, measure: Measure) -> float:
    """A metric's value in the unit of the field, with 15 digits: 0.57 is 57 %, not 56.99999999999999."""
    return value if measure.scale == 1.0 else float(f"{value / measure.scale:.15g}")
