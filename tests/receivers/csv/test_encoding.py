"""The encoder's promise: a point for each number, whatever the order, the mix and the number of the series."""

import random
from collections import Counter
from collections.abc import Iterable

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from otel_zernel.batch import Batch
from tests.otlp import rows_in
from tests.receivers.csv.running import Receive

WIDE = {
    "timestamp": "t",
    "resource": {"host.name": "host"},
    "attributes": {"gpu": "gpu"},
    "metrics": {"power": {}, "ratio": {"scale": 0.01}, "total": {"name": "power", "type": "sum"}},
}
Cell = tuple[str, str, str, str, int, float]
"""Host, metric, kind, GPU, time in s, value."""


def file(seed: int, rows: int) -> tuple[str, Counter[Cell]]:
    """Rows of 4 hosts and 5 GPUs in random order, a third of the cells empty, and the expected points."""
    chance = random.Random(seed)
    lines, expected = ["t,host,gpu,power,ratio,total\n"], Counter[Cell]()
    for second in range(1, rows + 1):
        host, gpu = f"h{chance.randrange(4)}", str(chance.randrange(5))
        cells = [chance.choice(["", str(chance.randrange(100)), str(chance.randrange(100))]) for _ in range(3)]
        lines.append(",".join((str(second), host, gpu, *cells)) + "\n")
        for (metric, kind, divisor), cell in zip(
            (("power", "gauge", 1), ("ratio", "gauge", 100), ("power", "sum", 1)), cells, strict=True
        ):
            if cell != "":
                expected[host, metric, kind, gpu, second, float(cell) / divisor] += 1
    return "".join(lines), expected


def cells_of(batches: Iterable[Batch]) -> list[Cell]:
    """The points, read by protobuf's own parser."""
    encoded = (batch.bytes_of("metrics") for batch in batches)
    return [
        (
            str(row.resource["host.name"]),
            row.metric.name,
            str(row.metric.WhichOneof("data")),
            str(row.attributes["gpu"]),
            row.point.time_unix_nano // 10**9,
            row.value,
        )
        for metrics in encoded
        for row in rows_in(MetricsData.FromString(metrics))
    ]


@pytest.mark.parametrize("batch_size", [1, 7, 60, 10_000])
async def test_every_number_becomes_its_point_exactly_once(receive: Receive, batch_size: int) -> None:
    text, expected = file(batch_size, 400)
    run = await receive(text, layout=WIDE, batch_size=batch_size)
    assert Counter(cells_of(run.downstream.batches)) == expected
    assert sum(batch.point_count for batch in run.downstream.batches) == expected.total()


async def test_full_caches_lose_no_number(receive: Receive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("otel_zernel_receivers.csv.encoding.MAX_SERIES", 10)
    monkeypatch.setattr("otel_zernel_receivers.csv.encoding.MAX_KEPT", 2000)
    text, expected = file(0, 400)
    run = await receive(text, layout=WIDE, batch_size=9)
    assert Counter(cells_of(run.downstream.batches)) == expected


async def test_the_points_of_a_series_are_sorted_by_time(receive: Receive) -> None:
    text = "t,host,gpu,power,ratio,total\n" + "".join(f"{second},h,0,1,,\n" for second in (3, 1, 2))
    run = await receive(text, layout=WIDE)
    assert [cell[4] for cell in cells_of(run.downstream.batches)] == [1, 2, 3]


async def test_rows_without_a_number_make_no_message(receive: Receive) -> None:
    run = await receive("t,host,gpu,power,ratio,total\n1,h,0,,,\n2,h,0,,,\n", layout=WIDE)
    assert cells_of(run.downstream.batches) == []
    assert run.dropped == {}
