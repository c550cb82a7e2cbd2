"""One line for each job and answer of the processor `phases`, in the words of `otel-zernel why`."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData

from otel_zernel.otlp.points import AttributeValue
from otel_zernel.text import visible
from otel_zernel_exporters.debug.basic import Layout
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.causes import JobAnswer, lead_of, ranks_seen
from otel_zernel_libraries.training.hangs import HANG, hang_sentences
from otel_zernel_libraries.training.points import scalars_of
from otel_zernel_libraries.training.span_attributes import MalformedSpan

_NAMES = ("service.name", semconv.JOB_ID, "process.executable.name")


def _logs(logs: LogsData) -> Iterator[str]:
    """`12:00:05 train.py (pid 8): The training thread runs Python while it loads data: this costs ... Try: ...`"""
    for of_resource in logs.resource_logs:
        title = _title(scalars_of(of_resource.resource.attributes))
        for record in (record for scope in of_resource.scope_logs for record in scope.log_records):
            try:
                words = _words(record)
            except MalformedSpan:  # of another release
                continue
            if words:
                time = datetime.fromtimestamp(record.time_unix_nano / 1e9, UTC)
                yield visible(f"{time:%H:%M:%S} {title}: {words}")


LAYOUT: Layout = {"logs": _logs}


def _title(resource: Mapping[str, AttributeValue]) -> str:
    name = next((str(resource[key]) for key in _NAMES if resource.get(key)), "a job")
    return f"{name} (pid {resource['process.pid']})" if "process.pid" in resource else name


def _words(record: LogRecord) -> str:
    """The answer on a job, or its hang; empty for another record. Raises `MalformedSpan`."""
    if record.event_name == semconv.JOB_CAUSES:
        answer = JobAnswer.from_body(record.body)
        if answer.says_nothing:
            return ""
        seen = f" ({seen})" if (seen := ranks_seen(answer)) else ""
        advice = [f"Try: {text}" for text in (answer.first.advice[:1] if answer.first else ())]
        return " ".join((f"{lead_of(answer)}{seen}", *advice))
    if record.event_name in (semconv.JOB_HUNG, semconv.JOB_STOPPED):
        return ". ".join(hang_sentences(HANG.read(record.body), record.time_unix_nano / 1e9))
    return ""
