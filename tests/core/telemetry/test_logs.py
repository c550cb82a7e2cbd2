"""Log lines have the OpenTelemetry Collector's form, with the component's fields. Repeated messages are dropped."""

import io
import json
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from otel_zernel.telemetry.logs import (
    Encoding,
    SamplingFilter,
    component_logger,
    log_uncaught_errors,
    set_up,
    write_summaries,
)

ENCODINGS: tuple[Encoding, ...] = ("console", "json")


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root, logger = logging.getLogger(), logging.getLogger("otel_zernel")
    handlers, level = root.handlers[:], logger.level
    yield
    root.handlers[:] = handlers
    sys.excepthook, threading.excepthook = sys.__excepthook__, threading.__excepthook__
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


def test_the_initial_fields_are_in_every_line_and_those_of_a_message_take_precedence() -> None:
    stream = io.StringIO()
    set_up("info", "json", None, stream, {"cluster": "a", "file": "none"})
    component_logger("receivers", "csv").info("hello", extra={"file": "x.csv"})
    line = json.loads(stream.getvalue())
    assert (line["cluster"], line["file"]) == ("a", "x.csv")


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
    assert rest[-1] == "  ValueError: broken"


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
    assert messages == [*rows, "another message", "row 8 is bad", "row 9 is bad"]


def test_the_number_of_messages_that_were_left_out_is_logged_with_the_next_one_and_at_the_end_of_the_tick() -> None:
    now = [0.0]
    stream = logged("json", SamplingFilter(10, 2, 3, lambda: now[0]))
    log = component_logger("receivers", "csv")
    for row in range(10):
        log.warning("row %d is bad", row)
    write_summaries()
    now[0] = 10.0
    write_summaries()
    write_summaries()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["msg"][4], line.get("left_out", 0)) for line in lines] == [
        *[("0", 0), ("1", 0), ("4", 2), ("7", 2)],
        ("9", 1),
    ]
    assert len(lines) + sum(line.get("left_out", 0) for line in lines) == 10


def test_threads_may_log_while_a_tick_ends() -> None:
    switch_interval = sys.getswitchinterval()
    sampling = SamplingFilter(0.0, 2, 3, time.monotonic)

    def log(thread: int) -> None:
        for number in range(2000):
            text = f"{thread} {number}"
            sampling.filter(logging.LogRecord("test", logging.INFO, "file", number, text, None, None))

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            for logging_thread in [threads.submit(log, thread) for thread in range(4)]:
                logging_thread.result()
    finally:
        sys.setswitchinterval(switch_interval)


def test_a_flood_of_one_component_does_not_hide_the_message_of_another() -> None:
    stream = logged("console", SamplingFilter(10, 1, 0, lambda: 0.0))
    for _ in range(5):
        component_logger("exporters", "otlp/a").warning("Export failed: %s", "down")
    component_logger("exporters", "otlp/b").warning("Export failed: %s", "down")
    assert [json.loads(line.split("\t")[3])["otelcol.component.id"] for line in stream.getvalue().splitlines()] == [
        "otlp/a",
        "otlp/b",
    ]


def test_an_error_in_a_thread_that_nobody_caught_is_a_line_of_the_log() -> None:
    stream = logged("json")
    log_uncaught_errors()
    thread = threading.Thread(target=lambda: 1 / 0, name="worker")
    thread.start()
    thread.join()
    line = json.loads(stream.getvalue())
    assert line["msg"] == "Thread worker ended with an error: ZeroDivisionError: division by zero"
    assert "ZeroDivisionError" in line["stacktrace"]


def test_a_foreign_string_can_neither_forge_a_line_nor_control_a_terminal() -> None:
    """Fault 11: a mapped path with a line break and an error behind it was written as a line of its own."""
    stream = logged("console")
    forged = "libcuda.so\n2026-01-01T00:00:00.000Z\terror\tall is lost\x1b[2J\x07\u2028\x85\r"
    try:
        raise ValueError(forged)
    except ValueError:
        component_logger("receivers", "ebpf").exception("cannot probe %s", forged, extra={"path": forged})
    escaped = r"libcuda.so\n2026-01-01T00:00:00.000Z\terror\tall is lost\x1b[2J\x07\u2028\x85\r"
    first, *trace = stream.getvalue().rstrip("\n").split("\n")
    assert first.split("\t")[2] == f"cannot probe {escaped}"
    assert json.loads(first.split("\t")[3])["path"] == escaped
    assert all(line.startswith("  ") and line.isprintable() for line in trace)


def test_a_path_that_is_no_utf8_is_readable_in_both_encodings() -> None:
    path = os.fsdecode(b"/data/\xff\xfe.csv")
    for encoding in ENCODINGS:
        stream = logged(encoding)
        component_logger("receivers", "csv").warning("cannot read %s", path)
        assert r"/data/\xff\xfe.csv" in stream.getvalue().replace("\\\\", "\\")
        stream.getvalue().encode()


def messages_of(stream: io.StringIO) -> list[str]:
    return [line.split("\t")[2] for line in stream.getvalue().splitlines()]


def test_a_repeated_finished_text_is_sampled_and_others_of_its_line_are_not() -> None:
    """Fault 21: 44,955 lines in 32 s."""
    stream = logged("console", SamplingFilter(10, 2, 0, lambda: 0.0))
    log = component_logger("receivers", "csv")
    for text in ("cannot open a", "cannot open a", "cannot open a", "cannot open b"):
        log.warning(text)
    assert messages_of(stream) == ["cannot open a", "cannot open a", "cannot open b"]


@pytest.mark.parametrize("template", ["%s", "%s: %s"])
def test_a_template_without_words_is_judged_by_its_text(template: str) -> None:
    stream = logged("console", SamplingFilter(10, 1, 0, lambda: 0.0))
    log = component_logger("receivers", "csv")
    for number in (1, 1, 2):
        log.warning(template, *([number] * template.count("%s")))
    assert len(messages_of(stream)) == 2


def test_a_flood_of_different_finished_texts_of_one_line_is_sampled() -> None:
    stream = logged("console", SamplingFilter(10, 2, 0, lambda: 0.0))
    log = component_logger("receivers", "csv")
    for number in range(50_000):
        log.warning(f"cannot open /data/{number}.csv")
    log.warning("something else")
    assert messages_of(stream) == [*(f"cannot open /data/{number}.csv" for number in range(20)), "something else"]


def test_tokens_in_urls_are_not_logged() -> None:
    url = "https://ada:hunter2@host/v1?token=hunter2&x=hunter2"
    for encoding in ENCODINGS:
        stream = logged(encoding)
        try:
            raise ValueError(f"cannot reach {url}: refused")
        except ValueError as error:
            component_logger("exporters", "otlp_http").exception("failed: %s", error, extra={"url": url})
        assert "hunter2" not in stream.getvalue()
        assert "https://[REDACTED]@host/v1?token=[REDACTED]&x=[REDACTED]" in stream.getvalue()
