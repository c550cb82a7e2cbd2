"""The log record, the metric and the span of a job that hangs."""

from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import AttributeValue, key_values
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.hangs import HANG, HungRank, JobHang, hang_sentences
from otel_zernel_processors.phases.emit.answers import record_batch
from otel_zernel_processors.phases.emit.traces import identifier, traces_data

_NAME = "hung"
_MOST_EVENTS = 64


def hang_record(hang: JobHang, resource: Resource, now: int) -> Batch:
    """The record of a hang, or of a stop, at `now` (ns). `resource` is that of the job, or of the process that trains
    alone."""
    event, severity = (semconv.JOB_STOPPED, "INFO") if hang.is_stop else (semconv.JOB_HUNG, "ERROR")
    return record_batch(event, HANG.write(hang), resource, now, severity)


def hang_span(hang: JobHang, resource: Resource, seed: str, now: int) -> Batch:
    """The span of a hang that is over, a trace of its own, with an event for each rank. `seed` identifies the job."""
    start = min(round(hang.since * 1e9), now)
    seed = f"{seed} hung {start}"
    collective: dict[str, AttributeValue] = {}
    if hang.collective:
        collective = {
            semconv.NCCL_OPERATION: hang.collective.operation,
            semconv.COLLECTIVE_COMMUNICATOR: hang.collective.communicator,
            semconv.COLLECTIVE_SEQUENCE: hang.collective.sequence,
        }
    span = Span(
        trace_id=identifier(seed, 16),
        span_id=identifier(seed, 8),
        name=_NAME,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=start,
        end_time_unix_nano=now,
        attributes=key_values({key: value for key, value in collective.items() if value}),
        status=Status(code=Status.STATUS_CODE_ERROR, message=hang_sentences(hang, now / 1e9)[0]),
        events=[_event(rank, start) for rank in hang.ranks[:_MOST_EVENTS]],
    )
    return Batch(spans=traces_data(resource, [span]))


def _event(rank: HungRank, start: int) -> Span.Event:
    about: dict[str, AttributeValue | None] = {
        semconv.RANK: rank.rank,
        "process.pid": rank.pid,
        "host.name": rank.host or None,
        semconv.ACTIVITY: rank.activity,
        semconv.HUNG_DETAIL: rank.detail or None,
        "code.stacktrace": "\n".join(rank.code) or None,
    }
    known = {key: value for key, value in about.items() if value is not None}
    return Span.Event(name=rank.role, time_unix_nano=start, attributes=key_values(known))
