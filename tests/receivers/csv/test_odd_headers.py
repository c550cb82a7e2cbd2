"""Headers that are incomplete, glued to a row, or between many lines that begin with a text."""

import pytest

from tests.receivers.csv.running import Receive
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
