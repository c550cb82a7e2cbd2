"""The receiver's promises: no row is lost, a bad row costs only itself, errors are sentences for users."""

import asyncio
import gzip
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_zernel.batch import Batch
from otel_zernel.errors import CannotStart, Rejected
from otel_zernel.testing import Downstream, FakeClock, make_context
from otel_zernel_receivers.csv import CsvReceiver
from tests.receivers.csv.running import HEADER, LAYOUT, SECOND, START, Receive, receiver, rows, values_of

EXAMPLES = Path(__file__).parents[3] / "examples"


async def test_batches_have_the_configured_number_of_rows(receive: Receive) -> None:
    run = await receive(HEADER + rows(25), layout=LAYOUT, batch_size=10)
    assert [batch.point_count for batch in run.downstream.batches] == [10, 10, 5]
    assert run.points == [("x", (START + index) * SECOND, index) for index in range(25)]


async def test_batches_know_their_temporalities(receive: Receive) -> None:
    """So an exporter does not look into each batch for deltas."""
    run = await receive((EXAMPLES / "training_node.csv").read_text(), layout="dcgm")
    assert run.downstream.batches
    for batch in run.downstream.batches:
        assert Batch.from_bytes(metrics=batch.bytes_of("metrics")).temporalities <= batch.temporalities == {2}


@pytest.mark.parametrize(
    ("bad", "reason", "detail"),
    [
        (b"1752871354,a,x", "wrong column count", "it has 3, and the header has 4"),
        (b"1752871354,a,x,1,2", "wrong column count", "it has 5, and the header has 4"),
        (b"1752871354,a,x,one", "not a number", "column 'v' has 'one'"),
        (b"1752871354,a,x,", "not a number", "column 'v' has ''"),
        (b"1752871354,a,x,NaN", "not a number", "column 'v' has 'NaN'"),
        (b"1752871354,a,x,1e999", "not a number", "column 'v' has '1e999'"),
        (b'1752871354,a,x,"1,5"', "not a number", "column 'v' has '1,5'; write the decimal point as a dot"),
        (b'1752871354,a,x,"61,5 W"', "not a number", "column 'v' has '61,5 W'; write the decimal point as a dot"),
        (b"yesterday,a,x,1", "bad time", "column 't' has 'yesterday'"),
        (b'1752871354,"a,x,1', "broken quote", ""),
        (b"1752871354,a\rb,x,1", "stray carriage return", ""),
        (b"1752871354,\xff,x,1", "not UTF-8", ""),
        (b"1752871354,%b,x,1" % (b"y" * 200_000), "line too long", ""),
    ],
)
async def test_a_bad_row_costs_only_itself_and_its_cell_is_named(
    receive: Receive, tmp_path: Path, caplog: pytest.LogCaptureFixture, bad: bytes, reason: str, detail: str
) -> None:
    rejects = tmp_path / "rejects.csv"
    content = (HEADER + rows(2)).encode() + bad + b"\n" + rows(2, 4).encode()
    run = await receive(content, layout=LAYOUT, rejects=str(rejects))
    assert run.values == [0, 1, 2, 3]
    assert run.dropped == {reason: 1}
    assert caplog.messages == [f"{tmp_path / 'input.csv'}:4: bad row: {reason}{detail and ': '}{detail}"]
    assert rejects.read_bytes() == bad[: 128 * 1024] + b"\n"


async def test_blank_lines_and_a_missing_last_line_end_are_valid(receive: Receive) -> None:
    run = await receive(HEADER + "\n" + rows(1) + "\r\n" + rows(1, 2).rstrip("\n"), layout=LAYOUT)
    assert run.values == [0, 1]
    assert run.dropped == {}


@given(st.binary())
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=50, deadline=None
)
def test_a_file_of_any_bytes_makes_rows_rejects_or_one_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "fuzz.csv"
    for head in (b"", HEADER.encode()):
        path.write_bytes(head + content)
        problem = ""
        try:
            asyncio.run(receiver(files=[str(path)], layout=LAYOUT).run(Downstream()))
        except CannotStart as error:
            problem = str(error)
        assert "\n" not in problem
        assert not problem or str(path) in problem


@pytest.mark.parametrize("compress", [gzip.compress, lambda data: zstandard.compress(data)], ids=["gzip", "zstd"])
async def test_compressed_files_are_recognised_by_their_first_bytes(receive: Receive, compress) -> None:  # type: ignore[no-untyped-def]
    run = await receive(compress((HEADER + rows(50)).encode()) + compress(rows(50, 100).encode()), layout=LAYOUT)
    assert run.values == list(range(100))


@pytest.mark.parametrize("compress", [gzip.compress, lambda data: zstandard.compress(data)], ids=["gzip", "zstd"])
async def test_the_rows_before_damage_are_emitted_and_the_error_names_the_file(tmp_path: Path, compress) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "cut.csv"
    path.write_bytes(compress((HEADER + rows(50_000)).encode()) + compress(rows(9).encode())[:-9])
    downstream = Downstream()
    with pytest.raises(CannotStart, match=f"cannot read {path}: "):
        await receiver(files=[str(path)], layout=LAYOUT).run(downstream)
    assert downstream.point_count >= 50_000


async def test_the_files_of_a_glob_are_read_in_order_and_each_has_its_own_header(
    receive: Receive, tmp_path: Path
) -> None:
    (tmp_path / "b.csv").write_text("v,m,k,t\n2,x,a,1752871355\n")
    (tmp_path / "a.csv").write_text(HEADER + rows(2))
    run = await receive(files=[str(tmp_path / "*.csv"), str(tmp_path / "a.csv")], layout=LAYOUT)
    assert run.values == [0, 1, 2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read {path}: No such file or directory"),
        (b"", "{path} has no header: its first line is empty; add a line with the names of the columns"),
        (b"t,k,v\n", "the header of {path} has no column 'm'"),
        (b"a,b\n", "the header of {path} has no column 't' and no column 'k' and no column 'm' and no column 'v'"),
        (b'"t,k,m,v\n', "the header of {path} is not valid CSV (broken quote)"),
        (b"\x1f\x8bnonsense", "cannot read {path}: Unknown compression method"),
        (b"\x28\xb5\x2f\xfdnonsense", "cannot read {path}: Unable to decompress Zstandard data"),
    ],
)
async def test_a_file_that_cannot_be_read_is_an_error_before_the_first_batch(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    good, path = tmp_path / "a.csv", tmp_path / "b.csv"
    good.write_text(HEADER + rows(1))
    if content is not None:
        path.write_bytes(content)
    downstream = Downstream()
    with pytest.raises(CannotStart) as caught:
        await receiver(files=[str(good), str(path)], layout=LAYOUT).run(downstream)
    assert str(caught.value).startswith("receivers::csv: " + message.format(path=path))
    assert not downstream.batches


async def test_a_glob_without_a_match_and_an_unwritable_rejects_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match=r"no file matches .*\*\.csv"):
        await receiver(files=[str(tmp_path / "*.csv")]).run(Downstream())
    (tmp_path / "a.csv").write_text(HEADER)
    with pytest.raises(CannotStart, match="rejects: cannot write"):
        await receiver(files=[str(tmp_path / "a.csv")], layout=LAYOUT, rejects=str(tmp_path)).run(Downstream())


async def test_with_timestamps_now_each_row_is_one_nanosecond_later(receive: Receive) -> None:
    run = await receive(HEADER + rows(5), layout=LAYOUT, timestamps="now", batch_size=2)
    start = FakeClock().time_ns()
    assert [time for _, time, _ in run.points] == [start + index for index in range(5)]


async def test_each_row_is_in_exactly_one_shard(receive: Receive) -> None:
    content = HEADER + rows(5) + "bad\n\n" + rows(7, 13)
    runs = [
        await receive(content, layout=LAYOUT, batch_size=4, shard={"index": index, "count": 3}) for index in range(3)
    ]
    assert [run.values for run in runs] == [[0, 3, 9, 12], [1, 4, 7, 10], [2, 8, 11]]
    assert [run.dropped for run in runs] == [{}, {}, {"wrong column count": 1}]


class Enough(Exception):
    """Raised downstream, to stop a receiver that never ends."""


async def test_loop_starts_again_and_pauses_for_the_interval_between_batches(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(HEADER + rows(4))
    clock, times = FakeClock(), []

    async def emit(batch: Batch, *, transport: str = "") -> None:
        times.append(clock.monotonic())
        if len(times) == 5:
            raise Enough

    config = {"files": [str(path)], "layout": LAYOUT, "loop": True, "interval": "5s", "batch_size": 2}
    with pytest.raises(Enough):
        await receiver(make_context(clock=clock), **config).run(emit)
    assert [later - earlier >= 5 for earlier, later in pairwise(times)] == [True] * 4


async def test_back_pressure_loses_no_row_and_a_rejection_does_not_stop_the_receiver(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(HEADER + rows(30))
    downstream = Downstream(refuse=7)
    await receiver(files=[str(path)], layout=LAYOUT, batch_size=10).run(downstream)
    assert values_of(downstream) == list(range(30))

    offered = []

    async def reject(batch: Batch, *, transport: str = "") -> None:
        offered.append(batch.point_count)
        raise Rejected("no")

    await receiver(files=[str(path)], layout=LAYOUT, batch_size=10).run(reject)
    assert offered == [10, 10, 10]


def test_a_missing_pyarrow_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CsvReceiver.missing() is None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'otel-zernel[csv]'" in str(CsvReceiver.missing())


def test_validation_does_not_load_pyarrow() -> None:
    program = "import sys, otel_zernel_receivers.csv; sys.exit('pyarrow' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", program], env=env, check=False).returncode == 0


async def test_a_loop_pauses_only_if_there_are_no_valid_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    clock = FakeClock()
    count = 0

    async def emit(batch: Batch, *, transport: str = "") -> None:
        nonlocal count
        count += 1
        if count == 10:
            raise Enough

    path.write_text(HEADER + rows(1))
    with pytest.raises(Enough):
        await receiver(make_context(clock=clock), files=[str(path)], layout=LAYOUT, loop=True).run(emit)
    assert clock.monotonic() == 0

    path.write_text(HEADER)
    running = asyncio.create_task(
        receiver(make_context(clock=clock), files=[str(path)], layout=LAYOUT, loop=True).run(emit)
    )
    while clock.monotonic() == 0:  # noqa: ASYNC110  # the clock has no event to wait for
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
