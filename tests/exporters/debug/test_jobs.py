"""The verbosity `jobs` prints one line for each answer on a job, and nothing else."""

from dataclasses import replace

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import key_values
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.causes import Cause, CauseName, JobAnswer, Unknown
from otel_zernel_libraries.training.hangs import HANG, HungRank, HungRole, JobHang
from tests.exporters.debug.showing import NOON, log_records, node, one_span, shown

ANSWER = JobAnswer(
    step=0.04,
    steps=100,
    ranks_seen=4,
    ranks_expected=8,
    causes=(
        Cause(
            cause=CauseName.STRAGGLER,
            rank=5,
            gain=0.01,
            gain_low=0.009,
            gain_high=0.011,
            share=0.25,
            advice=("Look at\x1b[2J its GPU.", "Look at its CPU."),
        ),
    ),
    best=0.03,
)


def record(event: str, body: AnyValue, **resource: str | int) -> Batch:
    logs = LogsData()
    of_resource = logs.resource_logs.add()
    of_resource.resource.attributes.extend(key_values(resource))
    of_resource.scope_logs.add().log_records.add(event_name=event, body=body, time_unix_nano=NOON)
    return Batch(logs=logs)


async def test_an_answer_is_one_line_with_what_to_try() -> None:
    line = await shown(record(semconv.JOB_CAUSES, ANSWER.to_body(), **{"service.name": "pretrain"}), "jobs")
    assert line.startswith("12:00:00 pretrain: The other ranks wait for rank 5")
    assert line.endswith("(4 of 8 ranks seen) Try: Look at\\x1b[2J its GPU.\n")
    assert "10.0 ms of each 40.0 ms step" in line


async def test_a_rank_without_an_answer_is_silent_and_a_job_without_one_is_not() -> None:
    unknown = JobAnswer(step=0.04, steps=3, best=0.04, unknown=Unknown.FEW_STEPS)
    rank = replace(unknown, ranks_expected=8)
    assert await shown(record(semconv.JOB_CAUSES, rank.to_body(), **{"process.pid": 8}), "jobs") == ""
    line = await shown(record(semconv.JOB_CAUSES, unknown.to_body(), **{"process.pid": 8}), "jobs")
    assert "No cause can be named" in line


async def test_a_hang_is_one_line() -> None:
    hang = JobHang(since=NOON / 1e9 - 60, ranks=(HungRank(rank=1, pid=8, role=HungRole.MISSING, detail="reads /x"),))
    line = await shown(record(semconv.JOB_HUNG, HANG.write(hang), **{"process.pid": 8}), "jobs")
    assert line.startswith("12:00:00 a job (pid 8): Rank 1 has hung for ")
    assert line.count("\n") == 1


async def test_all_other_data_is_silent() -> None:
    broken = record(semconv.JOB_CAUSES, AnyValue(string_value="of another release"))
    for batch in (node(), one_span(), log_records(), broken):
        assert await shown(batch, "jobs") == ""
