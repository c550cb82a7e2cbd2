"""The bodies of records with stacks and hangs are read as they were written."""

import json

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from otel_zernel_libraries.conditions.values import to_any_value
from otel_zernel_libraries.training.code_times import CodeTimes, PlacedStack
from otel_zernel_libraries.training.hangs import HANG, HungCollective, HungRank, HungRole, JobHang
from otel_zernel_libraries.training.ledger import Activity, Position
from otel_zernel_libraries.training.span_attributes import MalformedSpan
from otel_zernel_libraries.training.stacks import (
    MOST_STACKS,
    STACKS,
    THREADS,
    ChildNow,
    CodeLine,
    OpenCollective,
    ProcessStacks,
    ProcessThreads,
    StackTime,
    ThreadNow,
)

LINE = CodeLine("/home/me/zug/übung.py", "Trainer.fit", 42)


def test_the_stacks_of_a_process_survive_their_record() -> None:
    time = StackTime(thread=7, mark="optimizer", activity=Activity.PYTHON, seconds=0.25, lines=(0, 0))
    stacks = ProcessStacks(lines=(LINE,), stacks=(time,), left_out=0.5)
    assert STACKS.read(STACKS.write(stacks)) == stacks


def test_the_threads_of_a_process_survive_their_record() -> None:
    thread = ThreadNow(thread=7, is_main=True, activity=Activity.LOCK, detail="the lock", lines=(LINE,))
    threads = ProcessThreads(
        silent=12.5,
        threads=(thread,),
        collectives=(OpenCollective(operation="all_reduce", sequence=17, seconds=11.0),),
        children=(ChildNow(pid=8, is_worker=True, threads=(thread,)),),
    )
    assert THREADS.read(THREADS.write(threads)) == threads


def test_a_hang_survives_its_record() -> None:
    ranks = (HungRank(rank=1, pid=8, role=HungRole.MISSING, activity=Activity.FILE, code=("train.py:12 save",)),)
    hang = JobHang(since=1e9, collective=HungCollective(operation="all_reduce", sequence=17), ranks=ranks)
    assert HANG.read(HANG.write(hang)) == hang


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ("no JSON", ""),
        (json.dumps({"lines": [{"file": "a.py", "function": "f", "line": -1}]}), "lines.0.line"),
        (json.dumps({"stacks": [{"activity": "file", "seconds": 1.0, "lines": []}] * (MOST_STACKS + 1)}), "stacks"),
    ],
)
def test_a_body_that_breaks_the_contract_is_refused(body: str, place: str) -> None:
    with pytest.raises(MalformedSpan, match=f"^{place}$"):
        STACKS.read(AnyValue(string_value=body))


def test_a_map_that_breaks_the_contract_is_refused() -> None:
    with pytest.raises(MalformedSpan, match=r"^silent$"):
        THREADS.read(to_any_value({"silent": -1.0}))
    with pytest.raises(MalformedSpan, match=r"^$"):
        THREADS.read(to_any_value("no map"))


def test_the_code_of_a_process_survives_its_record() -> None:
    code = CodeTimes(
        2.5,
        [
            PlacedStack(2.0, Activity.PYTHON, (LINE, LINE), Position.FORWARD),
            PlacedStack(1.0, Activity.FILE, (LINE,), Position.LOAD, 9, is_other=True),
        ],
    )
    assert CodeTimes.from_body(code.to_body()) == code
