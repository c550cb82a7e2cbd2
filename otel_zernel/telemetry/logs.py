"""The collector's log on stderr: console or JSON lines as in the OpenTelemetry Collector, sampled by message."""

import json
import logging
import re
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
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


@dataclass(slots=True)
class _Count:
    """The equal messages of one tick."""

    seen: int = 0
    left_out: int = 0
    last: logging.LogRecord | None = None
    """The last one that was left out."""


class SamplingFilter(logging.Filter):
    """Limits repeated messages: in each `tick` (s), the first `initial` are logged, then every `thereafter`-th.

    Two messages are equal if their component, their level and their template are. The sampler of zap, the logger of the
    OpenTelemetry Collector, does the same. A finished text (a message without a template) is equal to the same text. In
    addition, all finished texts of one line of the program count together, with ten times the limit: a flood of
    messages that differ in a path must not fill the disk. If `thereafter` is 0, no message after the first `initial` is
    logged.

    The number of messages that were left out is never lost: the next equal message has it as the field `left_out`, and
    at the end of the tick `summaries` has the last message of each kind.
    """

    def __init__(self, tick: float, initial: int, thereafter: int, monotonic: Callable[[], float]) -> None:
        super().__init__()
        self._tick = tick
        self._initial = initial
        self._thereafter = thereafter
        self._monotonic = monotonic
        self._tick_end = monotonic() + tick
        self._counts: dict[tuple[object, ...], _Count] = {}
        self._due: list[logging.LogRecord] = []
        self._counting = threading.Lock()
        """Components log in threads, too."""

    def filter(self, record: logging.LogRecord) -> bool:
        with self._counting:
            return self._passes(record)

    def _passes(self, record: logging.LogRecord) -> bool:
        self._turn()
        component = getattr(record, "fields", {}).get("otelcol.component.id")
        template = str(record.msg)
        if record.args and not _ONLY_ARGUMENTS.fullmatch(template):
            return self._is_within((component, record.levelno, template), self._initial, record)
        text = (component, record.levelno, record.getMessage())
        is_new = len(self._counts) >= _MOST_KEYS and text not in self._counts
        if not is_new and not self._is_within(text, self._initial, record):
            return False
        return self._is_within((record.pathname, record.lineno), self._initial * _MOST_TEXTS, record)

    def summaries(self) -> list[logging.LogRecord]:
        """The last one of each kind of message that was left out in ticks that have ended, with their number."""
        with self._counting:
            self._turn()
            due, self._due = self._due, []
        return due

    def _turn(self) -> None:
        now = self._monotonic()
        if now < self._tick_end:
            return
        self._tick_end = now + self._tick
        for count in self._counts.values():
            if count.left_out and count.last:
                _add_left_out(count.last, count.left_out - 1)
                self._due.append(count.last)
        self._counts.clear()

    def _is_within(self, key: tuple[object, ...], initial: int, record: logging.LogRecord) -> bool:
        count = self._counts.setdefault(key, _Count())
        count.seen += 1
        surplus = count.seen - initial
        if surplus > 0 and (self._thereafter <= 0 or surplus % self._thereafter):
            count.left_out += 1
            count.last = record
            return False
        if count.left_out:
            _add_left_out(record, count.left_out)
            count.left_out = 0
        return True


def _add_left_out(record: logging.LogRecord, number: int) -> None:
    if number:
        record.fields = {**getattr(record, "fields", {}), "left_out": number}


class LogHandler(logging.StreamHandler[TextIO]):
    """Writes the records that `sampling` lets pass, and those that stand for the others."""

    def __init__(self, stream: TextIO, sampling: SamplingFilter | None) -> None:
        super().__init__(stream)
        self._sampling = sampling

    def handle(self, record: logging.LogRecord) -> bool:
        passes = self._sampling is None or self._sampling.filter(record)
        self.write_summaries()
        return passes and bool(super().handle(record))

    def write_summaries(self) -> None:
        """Writes a line for each kind of message that was left out. Call it now and then, and at the end."""
        for summary in self._sampling.summaries() if self._sampling else ():
            super().handle(summary)


class LineFormatter(logging.Formatter):
    """One line per record: tab-separated text (`console`), or a JSON object (`json`).

    Messages and fields may contain foreign strings: paths, answers of servers, attributes. So line breaks, control
    characters and bytes that are no UTF-8 are escaped here, and secrets in URLs are removed, once for the whole
    program. The lines of a traceback are indented, so that no exception's text looks like a line of the log.
    """

    def __init__(self, encoding: Encoding, initial_fields: Mapping[str, Any]) -> None:
        """`initial_fields` are the first fields of each line."""
        super().__init__()
        self._format = _console if encoding == "console" else _json
        self._initial_fields = initial_fields

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = {
            name: _safe(value) if isinstance(value, str) else value
            for name, value in {**self._initial_fields, **getattr(record, "fields", {})}.items()
        }
        if record.exc_info:
            fields["stacktrace"] = without_secrets("".join(traceback.format_exception(*record.exc_info)))
        return self._format(time, _LEVELS.get(record.levelno, "info"), _safe(record.getMessage()), fields)


_LEVELS = {
    logging.DEBUG: "debug",
    logging.INFO: "info",
    logging.WARNING: "warn",
    logging.ERROR: "error",
    logging.CRITICAL: "error",
}


def _safe(text: str) -> str:
    return visible(without_secrets(text))


def _console(time: str, level: str, message: str, fields: dict[str, Any]) -> str:
    stacktrace = fields.pop("stacktrace", "")
    line = "\t".join([time, level, message, *([json.dumps(fields, default=str)] if fields else [])])
    return "\n  ".join([line, *(visible(line) for line in stacktrace.splitlines())])


def _json(time: str, level: str, message: str, fields: dict[str, Any]) -> str:
    return json.dumps({"level": level, "ts": time, "msg": message, **fields}, default=str)


def set_up(
    level: str,
    encoding: Encoding,
    sampling: SamplingFilter | None,
    stream: TextIO | None = None,
    initial_fields: Mapping[str, Any] | None = None,
) -> None:
    """Writes the collector's log, and the warnings of its libraries, to `stream` (stderr) only."""
    handler = LogHandler(stream or sys.stderr, sampling)
    handler.setFormatter(LineFormatter(encoding, initial_fields or {}))
    logging.getLogger().handlers[:] = [handler]
    logging.getLogger(ROOT).setLevel({"warn": "WARNING"}.get(level, level.upper()))
    logging.captureWarnings(True)


def log_uncaught_errors() -> None:
    """Logs the exceptions that nobody caught: a traceback on stderr would not be JSON."""
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread


def write_summaries() -> None:
    """Writes the numbers of the messages that were left out in ticks that have ended."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogHandler):
            handler.write_summaries()


_logger = logging.getLogger(f"{ROOT}.telemetry")


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _logger.error("The collector ends with an error: %s: %s", kind.__name__, error, exc_info=(kind, error, trace))


def _log_uncaught_in_thread(arguments: threading.ExceptHookArgs) -> None:
    error = arguments.exc_value
    if error is not None and not isinstance(error, SystemExit):
        name = arguments.thread.name if arguments.thread else "?"
        _logger.error("Thread %s ended with an error: %s: %s", name, type(error).__name__, error, exc_info=error)
