"""Headers at the beginning and in the middle of files: each row is read by the header above it."""

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.errors import CannotStart
from otel_zernel.testing import make_context
from otel_zernel_libraries.files.growing import GrowingFile
from otel_zernel_receivers.csv.config import Columns
from otel_zernel_receivers.csv.headers import Headers
from otel_zernel_receivers.csv.layouts.layout import CustomLongLayout
from otel_zernel_receivers.csv.layouts.nvidia_smi import NvidiaSmiLayout
from otel_zernel_receivers.csv.parsing.lines import LineReader
from otel_zernel_receivers.csv.reader import CsvFileReader
from tests.receivers.csv.running import HEADER, LAYOUT, Receive, Run, append, rows
from tests.receivers.csv.test_follow import following

DAY = "2026/01/03 "
SMI = "timestamp, index, utilization.gpu [%], memory.used [MiB], temperature.gpu\n"
OTHER = "timestamp, index, temperature.gpu, utilization.gpu [%], memory.used [MiB]\n"
WIDE = {"timestamp": "t", "attributes": {"host": "host"}, "metrics": {"power": {}, "fan": {}}}


def by_metric(run: Run) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for name, _, value in run.points:
        values.setdefault(name.rpartition(".")[2], []).append(value)
    return values


def smi_rows(count: int, first: int = 0, *, other: bool = False) -> str:
    """Rows with a temperature of 20 to 79 degrees, a use of 50 % and 40,000 MiB."""
    cells = [
        ("{t}, 50, 40000" if other else "50, 40000, {t}").format(t=20 + n % 60) for n in range(first, first + count)
    ]
    return "".join(
        f"{DAY}{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}.5, 0, {cell}\n" for n, cell in enumerate(cells, first)
    )


@pytest.mark.parametrize("count", [2, 4000], ids=["plain parser", "fast parser"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "byte order mark"])
async def test_a_logger_that_restarts_with_other_fields_begins_a_new_layout(
    receive: Receive, count: int, mark: str
) -> None:
    run = await receive(SMI + smi_rows(count) + mark + OTHER + smi_rows(count, count, other=True) + SMI)
    values = by_metric(run)
    assert sorted(values["temperature"]) == sorted(20 + n % 60 for n in range(2 * count))
    assert values["utilization"] == [0.5] * (2 * count)
    assert values["usage"] == [40_000 * 2**20] * (2 * count)
    assert run.dropped == {}


async def test_a_restart_with_other_units_with_fewer_and_with_more_columns(receive: Receive) -> None:
    run = await receive(
        "timestamp, index, memory.used [MiB], power.draw [W]\n"
        f"{DAY}15:00:00, 0, 1024 MiB, 61.00 W\n"
        "timestamp, index, power.draw [mW]\n"
        f"{DAY}15:00:01, 0, 62000\n"
        "timestamp, index, uuid, memory.used [GiB], power.draw\n"
        f"{DAY}15:00:02, 0, GPU-1, 1, 63\n"
    )
    assert by_metric(run) == {"usage": [2**30, 2**30], "power": [61.0, 62.0, 63.0]}
    assert run.dropped == {}


async def test_headers_that_alternate_cost_no_row(receive: Receive) -> None:
    """Two cron jobs that append to one file."""
    text = "".join(SMI + smi_rows(1, n) + OTHER + smi_rows(1, n + 1, other=True) for n in range(0, 400, 2))
    run = await receive(text, batch_size=100)
    assert sorted(by_metric(run)["temperature"]) == sorted(20 + n % 60 for n in range(400))
    assert run.dropped == {}


async def test_in_layout_wide_the_second_header_counts_too(receive: Receive) -> None:
    run = await receive(
        "timestamp,gpu_id,hostname,temperature,power_draw\n"
        "2026-01-03 15:00:00,0,a,61,300\n"
        "hostname,gpu_id,power_draw,temperature,timestamp\n"
        "a,0,301,62,2026-01-03 15:00:01\n"
    )
    assert by_metric(run) == {"temperature": [61.0, 62.0], "power": [300.0, 301.0]}


async def test_a_header_is_found_in_files_whose_first_column_is_a_text(receive: Receive) -> None:
    text = "".join(f"node-{n},{n},2026-01-03 15:00:00,{n % 90}\n" for n in range(200))
    join = "".join(f"node-{n},{n},{n % 90},2026-01-03 15:00:01\n" for n in range(200))
    run = await receive(f"hostname,gpu_id,timestamp,temperature\n{text}hostname,gpu_id,temperature,timestamp\n{join}")
    assert sorted(by_metric(run)["temperature"]) == sorted([float(n % 90) for n in range(200)] * 2)
    assert run.dropped == {}


async def test_without_times_a_header_is_found_in_files_whose_first_column_is_a_text(receive: Receive) -> None:
    text = "".join(f"NVIDIA H100, GPU-{n}, {n % 90}, 50 %\n" for n in range(200))
    join = "".join(f"NVIDIA H100, GPU-{n}, 50 %, {n % 90}\n" for n in range(200))
    head, later = "name, uuid, temperature.gpu, utilization.gpu [%]", "name, uuid, utilization.gpu [%], temperature.gpu"
    run = await receive(f"{head}\n{text}{later}\n{join}", timestamps="now")
    assert sorted(by_metric(run)["temperature"]) == sorted([float(n % 90) for n in range(200)] * 2)
    assert by_metric(run)["utilization"] == [0.5] * 400
    assert run.dropped == {}


async def test_rows_below_a_header_without_a_required_column_are_dropped_and_counted(
    receive: Receive, caplog: pytest.LogCaptureFixture
) -> None:
    run = await receive(
        "timestamp, index, temperature.gpu\n"
        f"{DAY}15:00:00, 0, 61\n"
        "index, temperature.gpu, utilization.gpu [%]\n"
        "0, 62, 99\n"
        "timestamp, index, temperature.gpu\n"
        f"{DAY}15:00:02, 0, 63\n"
    )
    assert by_metric(run) == {"temperature": [61.0, 63.0]}
    assert run.dropped == {"unknown columns": 1}
    assert "input.csv:4: bad row: unknown columns: its header has no column" in caplog.messages[0]
    assert "'timestamp'" in caplog.messages[0]


async def test_a_custom_layout_goes_on_with_the_columns_that_a_later_header_has(
    receive: Receive, caplog: pytest.LogCaptureFixture
) -> None:
    run = await receive("t,host,power,fan\n1752871354,a,1,2\nhost,t,power\na,1752871355,3\n", layout=WIDE)
    assert by_metric(run) == {"power": [1.0, 3.0], "fan": [2.0]}
    assert [message.partition(": ")[2] for message in caplog.messages] == [
        "a later header has no column 'fan'; its other columns are read"
    ]


@pytest.mark.parametrize("index", range(3))
async def test_shards_count_rows_and_later_headers_alike(receive: Receive, index: int) -> None:
    later = "v,m,k,t\n" + "".join(f"{n},x,a,{1752871354 + n}\n" for n in (3, 4))
    run = await receive(HEADER + rows(2) + later, layout=LAYOUT, shard={"index": index, "count": 3})
    assert [value for _, _, value in run.points] == [n for n in (0, 1, 3, 4) if n % 3 == index]


async def test_a_followed_file_goes_on_with_its_last_header_after_a_restart(tmp_path: Path) -> None:
    path, kept = tmp_path / "a.csv", make_context(id_="csv")
    path.write_text(HEADER + rows(1, 2))
    async with following(path, context=kept) as followed:
        await followed.values(1)
        append(path, "v,m,k,t\n2,x,a,1752871355\n")
        assert await followed.values(2) == [1, 2]
    append(path, "3,x,a,1752871356\n")
    async with following(path, context=kept) as followed:
        assert await followed.values(1) == [3]


def test_reading_from_the_end_knows_the_last_header(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("t,k,m,v\n1752871354,a,x,1\nv,m,k,t\n2,x,a,1752871355\n3,x,a,17528")
    layout = CustomLongLayout(Columns.model_validate(LAYOUT))
    with closing(GrowingFile(str(path))) as file:
        file.skip_to_end()
        blocks = CsvFileReader([layout], True, ",", 10, threading.Event()).follow(file, None)
        assert next(blocks) is None
        append(path, "71356\n")
        block = next(blocks)
        assert block
        assert (block.header.line, list(block.lines), block.lines.first) == ("v,m,k,t", [b"3,x,a,1752871356\n"], 5)


GOOD = SMI + f"{DAY}15:00:00, 0, 98, 40123, 61\n"


@pytest.mark.parametrize(
    "content",
    [
        b"\n\n" + GOOD.encode(),
        b"sep=,\r\n" + GOOD.replace("\n", "\r\n").encode(),
        b"sep=;\n" + GOOD.replace(",", ";").encode(),
        b'\xef\xbb\xbf"sep=;"\n' + GOOD.replace(",", ";").encode(),
        b"# GPU log of node-a, begun at noon\n" + GOOD.encode(),
        b"GPU log\nDriver: 580.105.08, CUDA: 13.0\n\n" + GOOD.encode(),
        b"\xef\xbb\xbf" + GOOD.encode(),
        GOOD.encode("utf-16"),
        b"\xfe\xff" + GOOD.replace("\n", "\r\n").encode("utf-16-be"),
        ",".join(f'"{cell.strip()}"' for cell in SMI.split(",")).encode()
        + GOOD.partition("\n")[2].join("\n\n").encode(),
    ],
)
async def test_a_header_is_found_behind_what_other_programs_write_before_it(receive: Receive, content: bytes) -> None:
    run = await receive(content)
    assert by_metric(run) == {"utilization": [0.98], "usage": [40123 * 2**20], "temperature": [61.0]}
    assert run.dropped == {}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("timestamp;index;temperature.gpu\n", "set delimiter to ';'"),
        ("time,temp\n1,2\n", "its columns are 'time', 'temp'; check the options layout and delimiter"),
        ("# gpu   pwr gtemp\n# Idx     W     C\n    0    86    33\n", "give nvidia-smi the option --format=csv"),
        (
            "+-----------+\n| NVIDIA-SMI 580.105.08   Driver Version: 580.105.08 |\n",
            "nvidia-smi the option --format=csv",
        ),
        ("#Date, Time, gpu, pid, type, sm\n", "has a row per process"),
        ("#Time, gpu, pwr\n", "give nvidia-smi dmon the option -o DT"),
        ("#Date, gpu, pwr\n", "give nvidia-smi dmon the option -o DT"),
        ("# gpu, pwr\n", "give nvidia-smi dmon the option -o DT"),
        (b"timestamp,index,temperature.gpu [\xb0C]\n", "is not UTF-8; convert the file to UTF-8"),
        (SMI.encode("utf-16-be"), "is not UTF-8 but perhaps UTF-16; convert"),
        ("#Date, Time, gpu, fan\n", "its columns are '#Date', 'Time', 'gpu', 'fan'; check"),
        ("timestamp, gpu_uuid, pid, used_gpu_memory [MiB]\n", "has a row per process"),
    ],
)
async def test_a_file_that_cannot_be_read_says_what_it_is(receive: Receive, content: str | bytes, message: str) -> None:
    with pytest.raises(CannotStart) as caught:
        await receive(content)
    assert message in str(caught.value)


DMON = """#Date, Time, gpu, pwr, gtemp, mtemp, sm, mem, enc, dec, jpg, ofa, mclk, pclk
#YYYYMMDD, HH:MM:SS, Idx, W, C, C, %, %, %, %, %, %, MHz, MHz
 20260103, 15:36:53, 0, 86, 33, -, 30, 27, 0, 0, 0, 0, 6250, 1710
 20260103, 15:36:53, 1, 267, 39, -, 99, 61, 0, 0, 0, 0, 6250, 1740
"""


@pytest.mark.parametrize("repeated", [1, 500], ids=["plain parser", "fast parser"])
async def test_dmon_is_read_with_and_without_a_mapping(receive: Receive, repeated: int) -> None:
    text = DMON + DMON.partition("HH")[2].partition("\n")[2] * (repeated - 1)
    run = await receive(text)
    assert {time for _, time, _ in run.points} == {1767454613 * 10**9}
    assert set(by_metric(run)["power"]) == {86.0, 267.0}
    assert set(by_metric(run)["temperature"]) == {33.0, 39.0}
    mapping: dict[str, Any] = {
        "timestamp": "Date",
        "attributes": {"gpu": "gpu"},
        "metrics": {"pwr": {"name": "hw.power"}},
    }
    run = await receive(text, layout=mapping)
    assert by_metric(run) == {"power": [86.0] * repeated + [267.0] * repeated}
    assert run.dropped == {}


async def test_a_cell_with_a_unit_of_another_dimension_is_never_accepted(
    receive: Receive, caplog: pytest.LogCaptureFixture
) -> None:
    run = await receive(f"timestamp, index, power.draw [W]\n{DAY}15:00:00, 0, 40123 MiB\n{DAY}15:00:01, 0, 61000 mW\n")
    assert by_metric(run) == {"power": [61.0]}
    assert run.dropped == {"not a number": 1}
    assert caplog.messages[0].endswith("bad row: not a number: column 'power.draw [W]' has '40123 MiB'")


@pytest.mark.parametrize(
    "cell",
    [
        *("ERR!", "nan", "NaN", "N/A", "None", "[GPU is lost]", "[Unknown Error]", "", " ", "-", "-nan", "inf", "-Inf"),
        *("#N/A", "<NA>", "Unknown", "\\N", "-1.#IND", "[N/A] %", "N/A %", "[Unknown Error] W"),
    ],
)
@pytest.mark.parametrize("repeated", [1, 3000], ids=["plain parser", "fast parser"])
async def test_a_cell_without_a_value_costs_no_other_metric(receive: Receive, cell: str, repeated: int) -> None:
    run = await receive("t,host,power,fan\n" + f"1752871354,a,1,{cell}\n" * repeated, layout=WIDE)
    assert by_metric(run) == {"power": [1.0] * repeated}
    assert run.dropped == {}


async def test_texts_after_a_comma_and_a_blank_have_no_blank(receive: Receive) -> None:
    text = 't, host, power, fan\n1752871354, "a, b" , 1, 2\n1752871355,"a, b",1,2\n'
    run = await receive(text, layout=WIDE)
    (batch,) = run.downstream.batches
    points = batch.metrics.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points
    assert [[pair.value.string_value for pair in point.attributes] for point in points] == [["a, b"]] * 2


@pytest.mark.parametrize("batch_size", [1, 3, 10_000])
@pytest.mark.parametrize(("columns", "alike"), [("timestamp, name", True), ("timestamp, index", False)])
async def test_of_gpus_that_nothing_tells_apart_each_time_has_the_first_value(
    receive: Receive, caplog: pytest.LogCaptureFixture, columns: str, alike: bool, batch_size: int
) -> None:
    cells = ("H100", "H100") if alike else ("0", "1")
    text = "".join(f"{DAY}15:00:0{n // 2}, {cells[n % 2]}, {n} %, [N/A], {30 + n // 2}\n" for n in range(8))
    header = f"{columns}, utilization.gpu [%], power.draw [W], temperature.gpu\n"
    run = await receive(header + text, batch_size=batch_size)
    utilization = [0.0, 0.02, 0.04, 0.06] if alike else [n / 100 for n in range(8)]
    assert sorted(by_metric(run)["utilization"]) == utilization
    assert sorted(by_metric(run)["temperature"]) == [30.0 + n // 2 for n in range(8)]  # equal values are no conflict
    assert run.dropped == ({"conflicting values": 4} if alike else {})
    assert [("apart" in message) for message in caplog.messages] == [True] * alike


async def test_an_empty_first_cell_leaves_the_place_to_the_second_one(receive: Receive) -> None:
    rows = "".join(f"{DAY}15:00:00, {power}, {heat}\n" for power, heat in (("[N/A]", 30), (61, 31), (62, "[N/A]")))
    run = await receive(f"timestamp, power.draw [W], temperature.gpu\n{rows}")
    assert by_metric(run) == {"power": [61.0], "temperature": [30.0]}
    assert run.dropped == {"conflicting values": 2}


def test_the_search_for_headers_examines_few_lines() -> None:
    """Rows that begin with a number are never parsed for it, so that it costs nothing on the way of the fast parser."""
    headers = Headers([NvidiaSmiLayout()], timed=True)
    header = headers.parse(SMI, ",")
    stream = iter([smi_rows(1000).encode()])
    (block,) = LineReader(lambda _: next(stream, b"")).blocks(2000)
    assert block
    parts, after = headers.parts(block, header)
    assert (len(parts), parts[0].lines, after) == (1, block, header)
    assert not headers._known
