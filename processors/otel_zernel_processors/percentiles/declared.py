"""The metric of the processor about itself. Its results have the names of its inputs, see its README."""

from otel_zernel.component.declaration import by_name, own

CLAMPED = own(
    "zernel.percentiles.clamped",
    "{value}",
    "Values above max_value, counted as max_value.",
    when="from the first such value on",
)
METRICS = by_name(CLAMPED)
