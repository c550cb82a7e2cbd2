"""Reads the log records that a receiver writes about a process."""

from collections.abc import Callable, Mapping
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch
from otel_zernel_libraries.repeated_fields import keep_only
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.stacks import STACKS, THREADS, ProcessStacks, ProcessThreads

ProcessRecord = ProcessStacks | ProcessThreads
"""What a receiver writes about a process in a log record."""
_READ: Final[Mapping[str, Callable[[AnyValue], ProcessRecord]]] = {
    semconv.PROCESS_STACKS: STACKS.read,
    semconv.PROCESS_THREADS: THREADS.read,
}
"""By the event of a record: how its body is read."""


def read_record(record: LogRecord) -> ProcessRecord:
    """The body of a record with one of these events. Raises `MalformedSpan`."""
    return _READ[record.event_name](record.body)


def process_records(batch: Batch) -> list[tuple[Resource, LogRecord]]:
    """The records with one of these events, each with its resource."""
    return [
        (resource.resource, record)
        for resource in batch.logs.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
        if record.event_name in _READ
    ]


def without_process_records(batch: Batch) -> Batch | None:
    """The batch without these records; None if nothing remains."""
    logs = batch.edit_logs()
    for resource in logs.resource_logs:
        for scope in resource.scope_logs:
            keep_only(scope.log_records, lambda record: record.event_name not in _READ)
    if not any(scope.log_records for resource in logs.resource_logs for scope in resource.scope_logs):
        batch = batch.only(set(batch.signals) - {"logs"})
    return batch if batch.signals else None
