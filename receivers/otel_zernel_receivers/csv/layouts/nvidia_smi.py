"""The layout of `nvidia-smi --query-gpu=... --format=csv`: one row per GPU and time, one column per field."""

from collections.abc import Collection, Mapping, Sequence

from otel_zernel.otlp.points import Series, encode_point_attributes, encode_resource
from otel_zernel_libraries.gpu_names.nvidia_smi import FIELDS, TEXTS, TIMESTAMP, canonical, of_monitor, unit_of
from otel_zernel_libraries.gpu_names.nvidia_smi_cells import UNITS, is_message, is_missing
from otel_zernel_receivers.csv.layouts.layout import SCOPE, TELL_APART, CsvLayout, CsvSeries, gpu_resource

_DIGITS = frozenset("0123456789.")
_IDENTITIES = ("uuid", "index", "pci.bus_id", "serial")
_UNITS = {field.column: field.measure.descriptor.unit for field in FIELDS.values()}
"""The base units of the columns of numbers."""


def _has_other_unit(column: str) -> bool:
    """Whether a column of numbers has a unit in which its values cannot be read."""
    unit, base = unit_of(column), _UNITS.get(canonical(column))
    return bool(unit) and base is not None and (unit not in UNITS or UNITS[unit][1] != base)


class NvidiaSmiLayout(CsvLayout):
    """`layout: nvidia_smi`."""

    name = "nvidia_smi"
    timestamp = TIMESTAMP
    required = ()
    optional = tuple(TEXTS)
    numbers = tuple(FIELDS)
    requires_all_numbers = False
    sparse = True
    quantities = True

    @property
    def names(self) -> frozenset[str]:
        return super().names | {field.column for field in FIELDS.values()}

    def columns(self, header: Sequence[str]) -> list[str]:
        of_dmon = bool(header) and header[0].lstrip().startswith("#")
        if of_dmon:
            return [of_monitor(name) for name in header]
        return ["" if _has_other_unit(name) else canonical(name) for name in header]

    def warnings(self, header: Sequence[str], columns: Collection[str]) -> list[str]:
        unread = [repr(name.strip()) for name in header if _has_other_unit(name)]
        warnings = [f"no metric has the unit of {' and of '.join(unread)}; correct it"] if unread else []
        if not self.identifies(columns):
            return [*warnings, f"the header has none of {', '.join(_IDENTITIES)}: {TELL_APART}"]
        return warnings

    def identifies(self, columns: Collection[str]) -> bool:
        return any(name in columns for name in _IDENTITIES)

    def find_numbers(self, positions: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
        if "pid" in positions:
            raise LookupError(
                "has a row per process, which the layout nvidia_smi does not read: "
                "set layout to a mapping with process.pid: pid in its attributes"
            )
        columns: dict[tuple[str, ...], tuple[str, int]] = {}
        for name, field in FIELDS.items():
            if field.column in positions:
                series = (field.measure.descriptor.name, *map(str, field.measure.attributes.values()))
                columns.setdefault(series, (name, positions[field.column]))
        return tuple(columns.values())

    def read_number(self, number: str, text: str, header: str) -> float:
        unit = unit_of(header)
        return FIELDS[number].read(f"{text} {unit}" if unit and text[-1:] in _DIGITS else text)

    def is_message(self, line: str) -> bool:
        return is_message(line)

    def series(self, texts: Mapping[str, str], number: str) -> CsvSeries:
        known = {name: "" if is_missing(text) else text for name, text in texts.items()}
        # A bus id identifies a GPU on its host, as the index does, and keeps doing so after a reboot.
        uuid = known.get("uuid") or known.get("pci.bus_id", "")
        resource = gpu_resource(uuid=uuid, index=known.get("index", ""), model=known.get("name", ""), hostname="")
        others = {attribute: known.get(name, "") for name, attribute in TEXTS.items() if attribute not in resource}
        resource |= {attribute: text for attribute, text in others.items() if text}
        measure = FIELDS[number].measure
        identity = resource.get("hw.id")
        attributes = {**({"hw.id": identity} if identity else {}), **measure.attributes}
        encoded = encode_point_attributes(attributes)
        return CsvSeries(Series(encode_resource(resource), SCOPE, measure.descriptor, encoded), measure.scale)
