"""Answers as `phases` writes them, for the tests of readers."""

from collections.abc import Mapping
from dataclasses import replace

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import AttributeValue, key_values
from otel_zernel_libraries.training.causes import Cause, CauseName, CodeTime, DeviceTime, Evidence, Hidden, JobAnswer
from otel_zernel_libraries.training.ledger import Activity, Position

TOKENIZES = Cause(
    cause=CauseName.SEGMENT,
    phase="data_loading",
    position=Position.LOAD,
    activity=Activity.PYTHON,
    gain=0.0124,
    gain_low=0.0119,
    gain_high=0.0129,
    share=0.0124 / 0.0410,
    evidence=(Evidence("The training thread runs Python for 12.4 ms of each 41.0 ms (30 %).", 0.0124, "s"),),
    advice=("Load batches in worker processes: `DataLoader(..., num_workers=2)`.", "Tokenize once, before training."),
)
CODED = replace(
    TOKENIZES,
    lines=(
        CodeTime("train.py:42 tokenize", "transformers/tokenization_utils.py:2877 Tokenizer.__call__", 0.0081),
        CodeTime("data/text.py:118 Corpus.clean", "", 0.0031),
        CodeTime("train.py:61 main", "json/__init__.py:231 dumps", 0.0009),
    ),
    code=("train.py:42 tokenize", "data/text.py:118 Corpus.clean", "train.py:61 main"),
)
"""The same with its lines."""
LATE = Cause(
    cause=CauseName.STRAGGLER,
    phase="gpu_compute",
    position=Position.FORWARD,
    activity=Activity.CPU_WAIT,
    rank=1,
    gain=0.0034,
    gain_low=0.0021,
    gain_high=0.0047,
    share=0.0034 / 0.0410,
    evidence=(Evidence("Rank 1 waits for a CPU 4.1 ms longer than the median rank.", 0.0041, "s"),),
    advice=("Stop the other program on the CPUs of rank 1.",),
)
SLOW = JobAnswer(
    step=0.0410,
    steps=50,
    ranks_seen=2,
    ranks_expected=4,
    causes=(TOKENIZES, LATE),
    hidden=(Hidden(position=Position.AFTER_STEP, activity=Activity.SOCKET, rank=0, time=0.0021),),
    best=0.0252,
    looked_at=(CauseName.SEGMENT, CauseName.STRAGGLER),
)
HEALTHY = JobAnswer(step=0.0410, steps=50, best=0.0402, looked_at=(CauseName.SEGMENT, CauseName.CHECKPOINT))
LINES = replace(SLOW, causes=(CODED, LATE))
ANSWER = replace(LINES, device=DeviceTime(busy=0.026, starved={Position.LOAD: 0.012}, undetermined=0.002))
"""An answer with every field."""


def answer_batch(answer: JobAnswer, resource: Mapping[str, AttributeValue], time_ns: int = 1) -> Batch:
    """The record of an answer about a job or a process."""
    record = LogRecord(time_unix_nano=time_ns, event_name="zernel.job.causes", body=answer.to_body())
    scopes = [ScopeLogs(log_records=[record])]
    attributes = Resource(attributes=key_values(resource))
    return Batch(logs=LogsData(resource_logs=[ResourceLogs(resource=attributes, scope_logs=scopes)]))
