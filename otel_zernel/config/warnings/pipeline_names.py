"""Names of pipelines that look like a signal, but are none."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from otel_zernel.batch import Signal
from otel_zernel.config.settings import Settings
from otel_zernel.config.yaml12 import Path

_WORDS: Final[Mapping[str, Signal]] = {
    "metric": "metrics",
    "metrics": "metrics",
    "trace": "traces",
    "traces": "traces",
    "tracing": "traces",
    "span": "traces",
    "spans": "traces",
    "log": "logs",
    "logs": "logs",
    "logging": "logs",
}
"""Signals by the words that users write, in lower case."""


def misnamed(settings: Settings) -> Iterator[tuple[Path, str]]:
    """A warning for each pipeline that carries all signals, although its name looks like one signal."""
    for id_, pipeline in settings.pipelines.items():
        signal = _WORDS.get(re.split(r"[^a-z]", id_.lower(), maxsplit=1)[0])
        if signal and len(pipeline.signals) > 1:
            sentence = (
                f"the pipeline carries all signals; if it is for {signal} only, name it {signal} or {signal}/NAME"
            )
            yield ("service", "pipelines", id_), sentence
