"""Headers that are incomplete, late, glued to a row, or between many lines that begin with a text."""

import asyncio
from pathlib import Path

import pytest

from otel_zernel.errors import CannotStart
from otel_zernel.testing import Downstream
from tests.receivers.csv.running import HEADER, LAYOUT, Receive, append, receiver, rows
from tests.receivers.csv.test_follow import following
from tests.receivers.csv.test_headers import DAY, WIDE, by_metric

LOSS = {"timestamp": "timestamp", "metrics": {"loss": {}}}


@pytest.mark.parametrize(
    ("first", "later"),
    [("timestamp,step,loss", "timestamp,step,accuracy"), ("timestamp,step,loss", "timestamp,accuracy")],
)
async def test_a_later_header_needs_only_one_column_that_the_layout_needs(
    receive: Receive, first: str, later: str
) -> None:
    run = await receive(f"{first}\n1752871354,1,0.5\n{later}\n1752871355,2,0.91\n", layout=LOSS)
    assert by_metric(run) == {"loss": [0.5]}
    assert run.dropped == {"unknown columns": 1}


async def test_a_row_of_words_is_no_header(receive: Receive) -> None:
    run = await receive("t,host,power,fan\n1752871354,a,1,2\nn/a,b,power of c,none\n", layout=WIDE)
    assert run.dropped == {"not a number": 1}


@pytest.mark.parametrize("count", [3, 100, 3000])
async def test_a_header_without_a_required_column_is_found_in_blocks_of_any_size(receive: Receive, count: int) -> None:
    text = "".join(f"node-{n},{n},2026-01-03 15:00:00,{n % 90}\n" for n in range(count))
    run = await receive(f"hostname,gpu_id,timestamp,temperature\n{text}hostname,gpu_id,power_draw,temperature\n{text}")
    assert sorted(by_metric(run)["temperature"]) == sorted(float(n % 90) for n in range(count))
    assert run.dropped == {"unknown columns": count}


@pytest.mark.parametrize("count", [3, 100])
async def test_a_header_with_date_and_time_is_found_in_blocks_of_any_size(receive: Receive, count: int) -> None:
    rows = "".join(f"node-a,2026-01-03,15:00:00,0,{n % 90}\n" for n in range(count))
    later = "".join(f"node-a,{n % 90},2026-01-03,15:00:00,0\n" for n in range(count))
    run = await receive(f"hostname,Date,Time,gpu_id,temperature\n{rows}hostname,temperature,Date,Time,gpu_id\n{later}")
    assert sorted(by_metric(run)["temperature"]) == sorted([float(n % 90) for n in range(count)] * 2)
    assert run.dropped == {}


@pytest.mark.parametrize("count", [3, 100])
async def test_a_header_may_have_numbers_as_names_of_other_columns(receive: Receive, count: int) -> None:
    rows = "".join(f"a,{1752871354 + n},{n},7\n" for n in range(count))
    later = "".join(f"a,7,{1752871354 + n},{n}\n" for n in range(count))
    run = await receive(f"host,t,power,99\n{rows}host,99,t,power\n{later}", layout={**WIDE, "metrics": {"power": {}}})
    assert sorted(by_metric(run)["power"]) == sorted([*range(count)] * 2)


@pytest.mark.parametrize("torn", ["0, 6", "0, 61, 9", "", "0, "])
@pytest.mark.parametrize("count", [1, 3000], ids=["plain parser", "fast parser"])
async def test_a_header_behind_a_torn_row_is_found(receive: Receive, torn: str, count: int) -> None:
    run = await receive(
        "timestamp, index, temperature.gpu, utilization.gpu [%]\n"
        + f"{DAY}15:00:00, 0, 61, 98\n" * count
        + f"{DAY}15:00:01, {torn}timestamp, index, utilization.gpu [%], temperature.gpu\n"
        + f"{DAY}15:00:02, 0, 97, 62\n" * count
    )
    assert by_metric(run) == {
        "temperature": [61.0] * count + [62.0] * count,
        "utilization": [0.98] * count + [0.97] * count,
    }
    assert run.dropped.keys() <= {"wrong column count", "bad time", "not a number"}
    assert sum(run.dropped.values()) == 1


BANNER = "GPU logger 1.2 on node-a\n"


async def test_a_followed_file_with_only_a_banner_is_waited_for(tmp_path: Path) -> None:
    early, late = tmp_path / "early.csv", tmp_path / "late.csv"
    early.write_text(BANNER)
    async with following(early, late) as followed:
        append(early, HEADER + rows(1, 2))
        assert await followed.values(1) == [1]
        append(late, BANNER)
        append(early, rows(2, 3))
        assert await followed.values(2) == [1, 2]
        append(late, "node-a, noon\n" + HEADER + rows(3, 4))
        assert await followed.values(3) == [1, 2, 3]


async def test_a_followed_file_whose_header_needs_another_delimiter_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(BANNER + HEADER.replace(",", ";"))
    follow = receiver(files=[str(tmp_path / "a.csv")], layout=LAYOUT, follow=True)
    with pytest.raises(CannotStart, match="set delimiter to ';'"):
        await asyncio.wait_for(follow.run(Downstream()), 30)


async def test_rows_above_the_first_header_are_counted_logged_and_saved(
    receive: Receive, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = "node-a,1752871354,1,2\nnode-a,1752871355,3,4\n"
    text = f"# a, remark, of, four\n{BANNER}\n{rows}host,t,power,fan\nnode-a,1752871356,5,6\n"
    run = await receive(text, layout=WIDE, rejects=str(tmp_path / "rejects"))
    assert by_metric(run) == {"power": [5.0], "fan": [6.0]}
    assert run.dropped == {"unknown columns": 2}
    assert (tmp_path / "rejects").read_text() == rows
    assert caplog.messages[0].endswith("input.csv:4: bad row: unknown columns: its header comes below it")


async def test_a_separator_below_the_header_counts_for_the_header(receive: Receive) -> None:
    run = await receive(f"timestamp;index;temperature.gpu\nsep=;\n{DAY}15:00:00;0;61\n")
    assert by_metric(run) == {"temperature": [61.0]}
    assert run.dropped == {}


async def test_a_separator_counts_for_the_configured_header(receive: Receive) -> None:
    run = await receive(f"sep=;\n{DAY}15:00:00;0;61\n", header="timestamp,index,temperature.gpu")
    assert by_metric(run) == {"temperature": [61.0]}
    assert run.dropped == {}


DATES = ("2025-07-18T21:15:54Z", "1752873354")


@pytest.mark.parametrize("count", [1, 4000], ids=["plain parser", "fast parser"])
@pytest.mark.parametrize("date", DATES)
@pytest.mark.parametrize("metrics", [("loss",), ("loss", "time")])
async def test_a_date_with_a_time_needs_no_column_time(
    receive: Receive, count: int, date: str, metrics: tuple[str, ...]
) -> None:
    layout = {"timestamp": "date", "metrics": {name: {} for name in metrics}}
    run = await receive("date,time,loss\n" + f"{date},0.5,1.5\n" * count, layout=layout)
    assert by_metric(run) == {name: [{"loss": 1.5, "time": 0.5}[name]] * count for name in metrics}
    assert {time for _, time, _ in run.points} == {1752873354 * 10**9}
    assert run.dropped == {}
