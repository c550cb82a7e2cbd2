"""The collector's log on stderr: console or JSON lines as in the OpenTelemetry Collector, sampled by message."""

import json
import logging
import sys
import traceback
from collections import Counter
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from otel_zernel.component import Kind, Logger

ROOT = "otel_zernel"
Encoding = Literal["console", "json"]


class ComponentLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the component's fields to the fields of each call."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {"fields": {**(self.extra or {}), **kwargs.get("extra", {})}}
        return msg, kwargs


def component_logger(kind: Kind, component: str) -> Logger:
    """The logger of one component. Its lines have `otelcol.component.id` and `otelcol.component.kind`."""
    fields = {"otelcol.component.id": component, "otelcol.component.kind": kind.removesuffix("s")}
    return ComponentLogger(logging.getLogger(f"{ROOT}.{kind}"), fields)


class SamplingFilter(logging.Filter):
    """Limits repeated messages: in each `tick` (s), the first `initial` are logged, then every `thereafter`-th.

    Two messages are equal if their level and their template are. The sampler of zap, the logger of the OpenTelemetry
    Collector, does the same. If `thereafter` is 0, no message after the first `initial` is logged.
    """

    def __init__(self, tick: float, initial: int, thereafter: int, monotonic: Callable[[], float]) -> None:
        super().__init__()
        self._tick, self._initial, self._thereafter = tick, initial, thereafter
        self._monotonic = monotonic
        self._tick_end = monotonic() + tick
        self._counts: Counter[tuple[int, str]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        if self._monotonic() >= self._tick_end:
            self._tick_end = self._monotonic() + self._tick
            self._counts.clear()
        key = (record.levelno, str(record.msg))
        self._counts[key] += 1
        surplus = self._counts[key] - self._initial
        return surplus <= 0 or (self._thereafter > 0 and surplus % self._thereafter == 0)


class LineFormatter(logging.Formatter):
    """One line per record: tab-separated text (`console`), or a JSON object (`json`)."""

    def __init__(self, encoding: Encoding) -> None:
        super().__init__()
        self._format = _console if encoding == "console" else _json

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = dict(getattr(record, "fields", {}))
        if record.exc_info:
            fields["stacktrace"] = "".join(traceback.format_exception(*record.exc_info))
        return self._format(time, _LEVELS.get(record.levelno, "info"), record.getMessage(), fields)


_LEVELS = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warn", logging.ERROR: "error"}


def _console(time: str, level: str, message: str, fields: dict[str, Any]) -> str:
    stacktrace = fields.pop("stacktrace", "")
    line = "\t".join([time, level, message, *([json.dumps(fields, default=str)] if fields else [])])
    return f"{line}\n{stacktrace}".rstrip()


def _json(time: str, level: str, message: str, fields: dict[str, Any]) -> str:
    return json.dumps({"level": level, "ts": time, "msg": message, **fields}, default=str)


def set_up(level: str, encoding: Encoding, sampling: SamplingFilter | None, stream: TextIO | None = None) -> None:
    """Writes the collector's log, and the warnings of its libraries, to `stream` (stderr) only."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(encoding))
    if sampling:
        handler.addFilter(sampling)
    logging.getLogger().handlers[:] = [handler]
    logging.getLogger(ROOT).setLevel({"warn": "WARNING"}.get(level, level.upper()))
    logging.captureWarnings(True)
