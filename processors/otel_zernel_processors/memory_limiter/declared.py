"""The metrics of the processor about itself."""

from otel_zernel.component.declaration import DeclaredMetric, by_name, own

_UNITS = {
    "metric_points": "{datapoints}",
    "spans": "{spans}",
    "log_records": "{records}",
    "profile_samples": "{samples}",
}


def _items(outcome: str, noun: str) -> DeclaredMetric:
    return own(
        f"otelcol_processor_{outcome}_{noun}",
        _UNITS[noun],
        f"Items that memory_limiter {outcome}.",
        ("processor",),
        f"from the first {outcome} item on",
    )


ITEMS = {(outcome, noun): _items(outcome, noun) for outcome in ("accepted", "refused") for noun in _UNITS}
"""By outcome and noun of the signal."""
METRICS = by_name(*ITEMS.values())
