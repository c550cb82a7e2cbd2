"""Counts of a batch: one line for each signal, as in the OpenTelemetry Collector."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from otel_zernel.batch import Signal, count_items

Layout = Mapping[Signal, Callable[[Any], Iterator[str]]]
"""The lines of a message, by its signal."""
_WORDS: Final[Mapping[Signal, tuple[str, str, str]]] = {
    "metrics": ("Metrics", "metrics", "data points"),
    "traces": ("Traces", "spans", "spans"),
    "logs": ("Logs", "logs", "log records"),
    "profiles": ("Profiles", "profiles", "sample records"),
}


def _line(signal: Signal, message: Any) -> Iterator[str]:
    """`Metrics {"resource metrics": 1, "metrics": 10, "data points": 100}`; other signals have two numbers."""
    title, name, items = _WORDS[signal]
    resources = getattr(message, f"resource_{name}")
    counts = {f"resource {name}": len(resources)}
    if signal == "metrics":
        counts["metrics"] = sum(len(scope.metrics) for resource in resources for scope in resource.scope_metrics)
    yield f"{title} {json.dumps({**counts, items: count_items(message)})}"


LAYOUT: Final[Layout] = {signal: partial(_line, signal) for signal in _WORDS}
