"""Log lines have the OpenTelemetry Collector's form, with the component's fields. Repeated messages are dropped."""

import io
import json
import logging
import warnings
from collections.abc import Iterator

import pytest

from otel_zernel.telemetry.logs import Encoding, SamplingFilter, component_logger, set_up


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root, logger = logging.getLogger(), logging.getLogger("otel_zernel")
    handlers, level = root.handlers[:], logger.level
    yield
    root.handlers[:] = handlers
    logger.setLevel(level)
    logging.captureWarnings(False)


def logged(encoding: Encoding, sampling: SamplingFilter | None = None, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    set_up(level, encoding, sampling, stream)
    return stream


def test_a_console_line_has_time_level_message_and_fields() -> None:
    stream = logged("console")
    component_logger("receivers", "csv/a").warning("row %d is bad", 7, extra={"file": "x.csv"})
    when, level, message, fields = stream.getvalue().rstrip("\n").split("\t")
    assert when.endswith("Z")
    assert (level, message) == ("warn", "row 7 is bad")
    assert json.loads(fields) == {
        "otelcol.component.id": "csv/a",
        "otelcol.component.kind": "receiver",
        "file": "x.csv",
    }


def test_a_json_line_is_one_object_even_with_a_traceback() -> None:
    stream = logged("json")
    try:
        raise ValueError("line\nbreak")
    except ValueError:
        component_logger("exporters", "file").exception("failed")
    record = json.loads(stream.getvalue())
    assert (record["level"], record["msg"], record["otelcol.component.id"]) == ("error", "failed", "file")
    assert "ValueError: line\nbreak" in record["stacktrace"]


def test_a_console_traceback_follows_its_line() -> None:
    stream = logged("console")
    try:
        raise ValueError("broken")
    except ValueError:
        component_logger("exporters", "file").exception("failed")
    first, *rest = stream.getvalue().splitlines()
    assert "failed" in first
    assert rest[-1] == "ValueError: broken"


def test_warnings_of_libraries_have_the_same_form() -> None:
    stream = logged("json")
    logging.getLogger("some.library").warning("retrying in %d s", 3)
    logging.getLogger("some.library").info("all is well")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["level"] for line in lines] == ["warn", "warn"]
    assert lines[0]["msg"] == "retrying in 3 s"


def test_lines_below_the_level_are_not_written() -> None:
    stream = logged("console", level="warn")
    component_logger("receivers", "csv").info("fine")
    assert stream.getvalue() == ""


def test_a_repeated_message_is_sampled_in_each_tick() -> None:
    now = [0.0]
    stream = logged("console", SamplingFilter(10, 2, 3, lambda: now[0]))
    log = component_logger("receivers", "csv")
    for row in range(9):
        log.info("row %d is bad", row)
    log.info("another message")
    now[0] = 10.0
    log.info("row %d is bad", 9)
    messages = [line.split("\t")[2] for line in stream.getvalue().splitlines()]
    rows = ["row 0 is bad", "row 1 is bad", "row 4 is bad", "row 7 is bad"]
    assert messages == [*rows, "another message", "row 9 is bad"]
