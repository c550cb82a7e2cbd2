"""The collector's log on stderr: console or JSON lines as in the OpenTelemetry Collector, sampled by message."""

import json
import logging
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from otel_zernel.component import Kind, Logger
from otel_zernel.text import visible, without_secrets

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


_ONLY_ARGUMENTS = re.compile(r"[^A-Za-z%]*(?:%[a-z][^A-Za-z%]*)+")
"""A template without words, such as `%s` or `%s: %s`. Its messages have nothing in common."""
_MOST_TEXTS = 10
"""How many times `initial` different finished texts one line of the program may log."""
_MOST_KEYS = 10_000
"""Counted messages per tick. Beyond, a finished text is judged by its line of the program alone."""


class SamplingFilter(logging.Filter):
    """Limits repeated messages: in each `tick` (s), the first `initial` are logged, then every `thereafter`-th.

    Two messages are equal if their level and their template are. The sampler of zap, the logger of the OpenTelemetry
    Collector, does the same. A finished text (a message without a template) is equal to the same text. In addition,
    all finished texts of one line of the program count together, with ten times the limit: a flood of messages that
    differ in a path must not fill the disk. If `thereafter` is 0, no message after the first `initial` is logged.
    """

    def __init__(self, tick: float, initial: int, thereafter: int, monotonic: Callable[[], float]) -> None:
        super().__init__()
        self._tick, self._initial, self._thereafter = tick, initial, thereafter
        self._monotonic = monotonic
        self._tick_end = monotonic() + tick
        self._counts: Counter[tuple[object, ...]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        if self._monotonic() >= self._tick_end:
            self._tick_end = self._monotonic() + self._tick
            self._counts.clear()
        template = str(record.msg)
        if record.args and not _ONLY_ARGUMENTS.fullmatch(template):
            return self._is_within((record.levelno, template), self._initial)
        place, text = (record.pathname, record.lineno), (record.levelno, record.getMessage())
        is_new = len(self._counts) >= _MOST_KEYS and text not in self._counts
        return (is_new or self._is_within(text, self._initial)) and self._is_within(place, self._initial * _MOST_TEXTS)

    def _is_within(self, key: tuple[object, ...], initial: int) -> bool:
        self._counts[key] += 1
        surplus = self._counts[key] - initial
        return surplus <= 0 or (self._thereafter > 0 and surplus % self._thereafter == 0)


class LineFormatter(logging.Formatter):
    """One line per record: tab-separated text (`console`), or a JSON object (`json`).

    Messages and fields may contain foreign strings: paths, answers of servers, attributes. So line breaks, control
    characters and bytes that are no UTF-8 are escaped here, and secrets in URLs are removed, once for the whole
    program. The lines of a traceback are indented, so that no exception's text looks like a line of the log.
    """

    def __init__(self, encoding: Encoding) -> None:
        super().__init__()
        self._format = _console if encoding == "console" else _json

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = {
            name: _safe(value) if isinstance(value, str) else value
            for name, value in getattr(record, "fields", {}).items()
        }
        if record.exc_info:
            fields["stacktrace"] = without_secrets("".join(traceback.format_exception(*record.exc_info)))
        return self._format(time, _LEVELS.get(record.levelno, "info"), _safe(record.getMessage()), fields)


_LEVELS = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warn", logging.ERROR: "error"}


def _safe(text: str) -> str:
    return visible(without_secrets(text))


def _console(time: str, level: str, message: str, fields: dict[str, Any]) -> str:
    stacktrace = fields.pop("stacktrace", "")
    line = "\t".join([time, level, message, *([json.dumps(fields, default=str)] if fields else [])])
    return "\n  ".join([line, *(visible(one) for one in stacktrace.splitlines())])


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
