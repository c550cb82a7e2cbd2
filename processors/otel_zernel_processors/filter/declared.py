"""The metrics of the processor about itself."""

from otel_zernel.component.declaration import DeclaredMetric, by_name, own


def _filtered(noun: str) -> DeclaredMetric:
    return own(
        f"otelcol_processor_filter_{noun}.filtered",
        "1",
        f"Dropped {noun}, because a condition holds for them.",
        ("filter",),
        "from the first dropped item on",
    )


FILTERED = {noun: _filtered(noun) for noun in ("datapoints", "spans", "logs")}
"""By the noun of the signal."""
METRICS = by_name(*FILTERED.values())
