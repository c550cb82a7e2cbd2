"""The stacks of processes as profiles keep their time, lines, positions and activities."""

import gzip
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import key_values
from otel_zernel.protobuf import fields
from otel_zernel_libraries.training.code_profiles import pprof, profiles_data
from otel_zernel_libraries.training.code_times import CodeTimes, PlacedStack
from otel_zernel_libraries.training.ledger import Activity, Position
from tests.libraries.training.made_stacks import BACKWARD, LOOP, MAIN, TOKENIZE
from tests.otlp import SECOND, meaning_of_profiles

STACKS = (
    PlacedStack(3.0, Activity.PYTHON, (TOKENIZE, LOOP, MAIN), Position.LOAD),
    PlacedStack(0.5, Activity.PYTHON, (TOKENIZE, LOOP, MAIN), Position.LOAD),
    PlacedStack(1.0, Activity.OPERATOR, (BACKWARD, LOOP, MAIN), Position.BACKWARD),
    PlacedStack(1.5, Activity.SOCKET, (LOOP, MAIN), Position.AFTER_STEP),
    PlacedStack(2.0, Activity.PYTHON, (TOKENIZE, MAIN), Position.LOAD, 7, is_other=True),
    PlacedStack(0.25, Activity.TIMER, (LOOP,), is_other=True),
    PlacedStack(1e-12, Activity.LOCK, (LOOP,), is_other=True),
)
CODE = CodeTimes(6.0, STACKS)
NAMES: dict[str, str | int] = {"service.name": "train", "zernel.rank": 3}


def test_a_process_has_a_profile_of_its_cpu_time_and_one_of_its_waits() -> None:
    resource, scope = Resource(attributes=key_values(NAMES)), InstrumentationScope(name="test")
    message = profiles_data(CODE, resource, scope, 5 * SECOND, 15 * SECOND)
    (cpu_of, cpu_type, cpu_times, cpu), (_, waits_type, waits_times, waits) = meaning_of_profiles(message)
    assert (cpu_of, cpu_type, waits_type) == (NAMES, ("cpu", "nanoseconds"), ("off_cpu", "nanoseconds"))
    assert cpu_times[:2] == waits_times[:2] == (5 * SECOND, 10 * SECOND)
    assert cpu_times[2] != waits_times[2]
    main, loop, tokenize, backward = ((one.function, one.file, one.line) for one in (MAIN, LOOP, TOKENIZE, BACKWARD))
    load, python = {"zernel.position": "load"}, {"zernel.activity": "python"}
    assert cpu == [
        ([tokenize, loop, main], load | python, [3_500_000_000]),
        ([backward, loop, main], {"zernel.position": "backward", "zernel.activity": "operator"}, [SECOND]),
        ([tokenize, main], load | python | {"zernel.dataloader.worker.pid": 7}, [2 * SECOND]),
    ]
    assert waits == [
        ([loop, main], {"zernel.position": "after_step", "zernel.activity": "socket"}, [1_500_000_000]),
        ([loop], {"zernel.activity": "timer"}, [250_000_000]),
    ]
    assert Batch(profiles=message).item_count == 5


def test_the_first_row_of_each_table_is_empty() -> None:
    message = profiles_data(CODE, Resource(), InstrumentationScope(), 0, SECOND)
    tables = message.dictionary.ListFields()
    assert len(tables) > 3
    for field, rows in tables:
        assert not (rows[0] if field.name == "string_table" else rows[0].ByteSize()), field.name


def test_a_process_without_stacks_has_no_profile() -> None:
    assert not profiles_data(CodeTimes(), Resource(), InstrumentationScope(), 0, SECOND).resource_profiles


def test_a_file_of_pprof_has_the_samples_of_all_processes() -> None:
    encoded = gzip.decompress(pprof([(CODE, NAMES), (CODE, {**NAMES, "zernel.rank": 4})]))
    # numbers of fields in profile.proto: sample_type 1, sample 2, location 4, function 5, string_table 6
    assert Counter(number for number, _ in fields(encoded) if number != 6) == {1: 3, 2: 10, 4: 4, 5: 4}
    texts = [content.decode() for number, content in fields(encoded) if number == 6]
    assert texts[:5] == ["", "cpu", "nanoseconds", "off_cpu", "time"]
    assert {TOKENIZE.file, TOKENIZE.function, "zernel.rank", "zernel.position", "after_step"} < set(texts)


@pytest.mark.soak
def test_go_reads_a_file_of_pprof_and_filters_it_by_position_and_rank(tmp_path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed")
    file = tmp_path / "stacks.pprof"
    file.write_bytes(pprof([(CODE, NAMES), (CODE, {**NAMES, "zernel.rank": 4})]))

    def lines(*options: str) -> list[list[str]]:
        command = [go, "tool", "pprof", "-top", "-lines", *options, str(file)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return [line.split() for line in output.splitlines()]

    where = ["tokenize", f"{TOKENIZE.file}:{TOKENIZE.line}"]
    loads, third = lines("-sample_index=cpu", "-tagfocus=zernel.position=load"), lines("-tagfocus=zernel.rank=3")
    assert ["11s", *where] in [[*row[:1], *row[5:]] for row in loads]
    assert ["5.50s", *where] in [[*row[:1], *row[5:]] for row in third]
    assert not any(where == row[5:] for row in lines("-sample_index=off_cpu"))
