"""The collector's log on stderr: the Collector's console or JSON lines, rate-limited by message."""

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
    """Adds a component's fields to those of a call."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {"fields": {**(self.extra or {}), **kwargs.get("extra", {})}}
        return msg, kwargs


def component_logger(kind: Kind, component: str) -> Logger:
    """The logger of one component; its lines carry `otelcol.component.id` and `.kind`."""
    fields = {"otelcol.component.id": component, "otelcol.component.kind": kind.removesuffix("s")}
    return ComponentLogger(logging.getLogger(f"{ROOT}.{kind}"), fields)


class Sampling(logging.Filter):
    """Lets through the `initial` first lines of a message in every `tick` (s), then each `thereafter`-th.

    As zap's sampler in the Collector; messages are equal if level and template are.
    """

    def __init__(self, tick: float, initial: int, thereafter: int, monotonic: Callable[[], float]) -> None:
        super().__init__()
        self._tick, self._initial, self._thereafter = tick, initial, thereafter
        self._monotonic = monotonic
        self._ends = monotonic() + tick
        self._seen: Counter[tuple[int, str]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        if self._monotonic() >= self._ends:
            self._ends = self._monotonic() + self._tick
            self._seen.clear()
        key = (record.levelno, str(record.msg))
        self._seen[key] += 1
        beyond = self._seen[key] - self._initial
        return beyond <= 0 or (self._thereafter > 0 and beyond % self._thereafter == 0)


class LineFormatter(logging.Formatter):
    """One line a record: tab-separated for people (`console`) or an object for machines (`json`)."""

    def __init__(self, encoding: Encoding) -> None:
        super().__init__()
        self._format = _console if encoding == "console" else _json

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = dict(getattr(record, "fields", {}))
        if record.exc_info:
            fields["stacktrace"] = "".join(traceback.format_exception(*record.exc_info))
        return self._format(when, _LEVELS.get(record.levelno, "info"), record.getMessage(), fields)


_LEVELS = {logging.DEBUG: "debug", logging.INFO: "info", logging.WARNING: "warn", logging.ERROR: "error"}


def _console(when: str, level: str, message: str, fields: dict[str, Any]) -> str:
    stacktrace = fields.pop("stacktrace", "")
    line = "\t".join([when, level, message, *([json.dumps(fields, default=str)] if fields else [])])
    return f"{line}\n{stacktrace}".rstrip()


def _json(when: str, level: str, message: str, fields: dict[str, Any]) -> str:
    return json.dumps({"level": level, "ts": when, "msg": message, **fields}, default=str)


def set_up(level: str, encoding: Encoding, sampling: Sampling | None, stream: TextIO | None = None) -> None:
    """Sends the collector's log, and the warnings of the libraries it uses, to `stream` (stderr) alone."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(encoding))
    if sampling:
        handler.addFilter(sampling)
    logging.getLogger().handlers[:] = [handler]
    logging.getLogger(ROOT).setLevel({"warn": "WARNING"}.get(level, level.upper()))
    logging.captureWarnings(True)
