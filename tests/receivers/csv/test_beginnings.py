"""Beginnings of files: lines before the header, a header that comes later, and `sep=`."""

import asyncio
from pathlib import Path

import pytest

from otel_zernel.errors import CannotStart
from otel_zernel.testing import Downstream
from tests.receivers.csv.running import Receive, receiver
from tests.receivers.csv.test_follow import HEADER, LAYOUT, append, following, row
from tests.receivers.csv.test_headers import DAY, WIDE, by_metric

BANNER = "GPU logger 1.2 on node-a\n"


async def test_a_followed_file_with_only_a_banner_is_waited_for(tmp_path: Path) -> None:
    early, late = tmp_path / "early.csv", tmp_path / "late.csv"
    early.write_text(BANNER)
    async with following(early, late) as followed:
        append(early, HEADER + row(1))
        assert await followed.values(1) == [1]
        append(late, BANNER)
        append(early, row(2))
        assert await followed.values(2) == [1, 2]
        append(late, "node-a, noon\n" + HEADER + row(3))
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
