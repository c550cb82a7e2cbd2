"""Answers as `phases` writes them, for the tests of readers."""

from collections.abc import Mapping

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import AttributeValue, key_values
from otel_zernel_libraries.training.causes import Cause, CauseName, DeviceTime, Evidence, Hidden, JobAnswer
from otel_zernel_libraries.training.ledger import Activity, Position

SLOW_LOAD = Cause(
    cause=CauseName.SEGMENT,
    phase="data_loading",
    position=Position.LOAD,
    activity=Activity.PYTHON,
    rank=1,
    gain=0.012,
    gain_low=0.011,
    gain_high=0.013,
    share=0.3,
    evidence=(Evidence("The training thread runs Python for 12.4 ms of each step while it loads data.", 0.0124, "s"),),
    advice=("Let worker processes load the data: `DataLoader(num_workers=2)`.",),
)
ANSWER = JobAnswer(
    step=0.04,
    steps=500,
    ranks_seen=2,
    ranks_expected=4,
    causes=(SLOW_LOAD,),
    hidden=(Hidden(position=Position.AFTER_STEP, activity=Activity.FILE, time=0.004),),
    best=0.028,
    looked_at=(CauseName.SEGMENT, CauseName.STRAGGLER),
    device=DeviceTime(busy=0.026, starved={Position.LOAD: 0.012}, undetermined=0.002),
)


def answer_batch(answer: JobAnswer, resource: Mapping[str, AttributeValue], time_ns: int = 1) -> Batch:
    """The record of an answer about a job or a process."""
    record = LogRecord(time_unix_nano=time_ns, event_name="zernel.job.causes", body=answer.to_body())
    scopes = [ScopeLogs(log_records=[record])]
    attributes = Resource(attributes=key_values(resource))
    return Batch(logs=LogsData(resource_logs=[ResourceLogs(resource=attributes, scope_logs=scopes)]))
