"""The log records of this receiver: each has the resource of the process that it is about."""

from collections.abc import Iterable

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel import __version__
from otel_zernel.batch import Batch
from otel_zernel.otlp.points import Attributes, key_values

_SCOPE = InstrumentationScope(name="otel_zernel_receivers.ebpf", version=__version__)


def log_batch(records: Iterable[tuple[Attributes, LogRecord]]) -> Batch | None:
    """The records, each with the attributes of its resource; None if there are none."""
    resources = [
        ResourceLogs(
            resource=Resource(attributes=key_values(attributes)),
            scope_logs=[ScopeLogs(scope=_SCOPE, log_records=[record])],
        )
        for attributes, record in records
    ]
    return Batch(logs=LogsData(resource_logs=resources)) if resources else None


def info_record(event: str, body: AnyValue, time_ns: int) -> LogRecord:
    """A record that reports facts. `time_ns`: Unix time."""
    return LogRecord(
        time_unix_nano=time_ns,
        observed_time_unix_nano=time_ns,
        severity_number=SeverityNumber.SEVERITY_NUMBER_INFO,
        severity_text="INFO",
        event_name=event,
        body=body,
    )
