"""Pages of points: filters, order, fields and formats.

A series that is stored between the catalogue's refresh and the query of a page is on the page.
"""

import csv
import io
import json
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import ipc

from otel_zernel_extensions.query.config import QueryConfig
from otel_zernel_extensions.query.open_store import OpenStore
from otel_zernel_extensions.query.routes import QueryRoutes
from otel_zernel_libraries.store.config import WritableStoreConfig
from otel_zernel_libraries.store.sqlite.sqlite_reader import SqliteReader
from tests.api_server import FakeApiServer
from tests.extensions.query.serving import BEGIN, SECOND, Served, gauge, serving
from tests.libraries.store.given import sqlite_config


async def filled(served: Served) -> None:
    for host in ("n1", "n2"):
        for index in (0, 1):
            power = gauge("hw.power", [100.0 * index + place for place in range(5)], hw_id=f"GPU-{host}-{index}")
            await served.write(power, host_name=host, zernel_gpu_index=str(index), hw_model="H100")


async def test_a_page_has_the_points_in_the_order_of_time(served: Served) -> None:
    await filled(served)
    answer = (await served.get("/telemetry?page_size=3&fields=timestamp,value,host_id,gpu_id,uuid,model,unit")).json
    assert answer["page"] == 1
    assert answer["page_size"] == 3
    assert answer["has_more"]
    assert answer["data"][0] == {
        "timestamp": "2023-11-14T22:13:20.000000000Z",
        "value": 0.0,
        "host_id": "n1",
        "gpu_id": "0",
        "uuid": "GPU-n1-0",
        "model": "H100",
        "unit": "W",
    }


@pytest.mark.parametrize("order", ["time", "-time", "series"])
@pytest.mark.parametrize("query", ["", "host_id=n1", "gpu_id=GPU-n2-1", "metric=hw.power&gpu_id=0"])
async def test_pages_by_cursor_and_by_number_have_each_point_once(served: Served, query: str, order: str) -> None:
    await filled(served)
    url = f"/telemetry?{query}&sort={order}&fields=timestamp,uuid,value&page_size="
    whole = await served.data(f"{url}1000")
    assert (
        len({(one["timestamp"], one["uuid"]) for one in whole})
        == len(whole)
        == {"": 20, "host_id=n1": 10}.get(query, 5 if "GPU" in query else 10)
    )
    by_number = [one for page in range(1, 12) for one in await served.data(f"{url}2&page={page}")]
    by_cursor, more = [], ""
    while more is not None:
        answer = (await served.get(f"{url}2{more}")).json
        by_cursor += answer["data"]
        more = answer["next_cursor"] and f"&cursor={answer['next_cursor']}"
    assert by_number == by_cursor == whole
    times = [one["timestamp"] for one in whole]
    if order != "series":
        assert times == sorted(times, reverse=order == "-time")


async def test_a_cursor_neither_repeats_nor_omits_points_while_others_arrive(served: Served) -> None:
    await filled(served)
    first = (await served.get("/telemetry?page_size=7")).json
    await served.write(gauge("hw.power", [1.0, 2.0, 3.0], hw_id="GPU-n3-0"), host_name="n3")
    second = (await served.get(f"/telemetry?page_size=100&cursor={first['next_cursor']}")).json
    seen = [(one["timestamp"], one["uuid"]) for one in first["data"] + second["data"]]
    assert len(seen) == len(set(seen))
    assert {one for one in seen if "n3" not in one[1]} == {
        (f"2023-11-14T22:13:2{place}.000000000Z", f"GPU-{host}-{index}")
        for place in range(5)
        for host in ("n1", "n2")
        for index in (0, 1)
    }


async def test_times_bound_a_page_with_the_start_and_without_the_end(served: Served) -> None:
    await filled(served)
    seconds = BEGIN // SECOND
    for start, end in (
        (f"{seconds + 1}", f"{seconds + 3}"),
        ("2023-11-14T22:13:21Z", "2023-11-14T22:13:23Z"),
        ("2023-11-14T23:13:21%2B01:00", "2023-11-14T23:13:23+01:00"),
    ):
        data = await served.data(f"/telemetry?start_time={start}&end_time={end}&gpu_id=GPU-n1-0&fields=value")
        assert data == [{"value": 1.0}, {"value": 2.0}]


async def test_any_attribute_is_a_filter_and_no_text_is_sql(served: Served) -> None:
    await served.write(gauge("m", [1.0], odd="'; DROP TABLE points; --"), host_name='a"b')
    quoted = "%27%3B%20DROP%20TABLE%20points%3B%20--"
    assert len(await served.data(f"/telemetry?label[odd]={quoted}")) == 1
    assert len(await served.data("/telemetry?label[host.name]=a%22b")) == 1
    assert await served.data("/telemetry?label[odd]=x%27%20OR%201%3D1") == []
    assert await served.data("/telemetry?label[x%27%29--]=1") == []
    assert len(await served.data("/telemetry")) == 1


async def test_csv_and_arrow_have_the_same_points(served: Served) -> None:
    await filled(served)
    url = "/telemetry?fields=timestamp,host_id,value&page_size=50"
    expected = await served.data(url)
    text = await served.get(url, {"accept": "text/csv"})
    rows = list(csv.DictReader(io.StringIO(text.body.decode())))
    assert [{**row, "value": float(row["value"])} for row in rows] == expected
    table = ipc.open_stream((await served.get(f"{url}&format=arrow")).body).read_all()
    assert table.column("value").to_pylist() == [one["value"] for one in expected]
    assert table.schema.field("timestamp").type == pa.timestamp("ns", "UTC")
    assert table.column("timestamp").cast(pa.int64())[0].as_py() == BEGIN


@pytest.mark.parametrize(
    ("query", "parameter", "sentence"),
    [
        ("page=0", "page", "use an integer from 1"),
        ("page=99999", "page", "use cursor"),
        ("page_size=1001", "page_size", "from 1 to 1000"),
        ("start_time=yesterday", "start_time", "2026-11-22T10:30:00Z"),
        ("start_time=2024-01-01&end_time=2023-01-01", "end_time", "after start_time"),
        ("time_range=1y", "time_range", "7d"),
        ("sort=value", "sort", "time, -time, series"),
        ("fields=valu", "fields", "valu"),
        ("host=n1", "host", "host_id"),
        ("cursor=abc", "cursor", "next_cursor"),
        ("cursor=" + urlsafe_b64encode(bytes(24)).decode(), "cursor", "other filters"),
        ("page=1&page=2", "page", "once"),
    ],
)
async def test_a_wrong_parameter_is_a_problem_that_names_it(
    served: Served, query: str, parameter: str, sentence: str
) -> None:
    answer = await served.get(f"/telemetry?{query}")
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["parameter"] == parameter
    assert sentence in answer.json["detail"]


async def test_the_validator_changes_with_a_batch_only(served: Served) -> None:
    await filled(served)
    first = await served.get("/telemetry")
    again = await served.get("/telemetry", {"if-none-match": first.headers["etag"]})
    assert again.status == 304
    assert again.body == b""
    await served.write(gauge("other", [1.0]))
    changed = await served.get("/telemetry", {"if-none-match": first.headers["etag"]})
    assert changed.status == 200
    assert len(changed.json["data"]) == 21


async def test_the_validator_of_a_range_that_moves_changes_with_the_time(served: Served) -> None:
    """A batch is not the only change: old points leave the last hour."""
    await filled(served)
    for path in ("/telemetry?time_range=1h", "/telemetry/aggregations?time_range=1h", "/telemetry/aggregations"):
        first = await served.get(path)
        served.clock.advance(3600)
        later = await served.get(path, {"if-none-match": first.headers["etag"]})
        assert later.status == 200, path


class OvertakenReader(SqliteReader):
    """Stores another series before its first query for points."""

    def __init__(self, settings: WritableStoreConfig, served: Served) -> None:
        super().__init__(Path(settings.url.removeprefix("sqlite://")), settings, "test")
        self._served: Served | None = served

    async def fetch(self, sql: str, *values: Any) -> list[Sequence[Any]]:
        if " FROM points " in sql and (served := self._served):
            self._served = None
            await served.write(gauge("late", [3.0]))
        return await super().fetch(sql, *values)


async def test_a_page_has_a_series_that_was_stored_after_its_request(tmp_path: Path) -> None:
    settings = sqlite_config(tmp_path, synchronous="normal")
    async with serving(settings) as served:
        await served.write(gauge("early", [1.0]))
        reader = OvertakenReader(settings, served)
        routes = QueryRoutes(
            QueryConfig.model_validate({"url": settings.url}), OpenStore(reader, 100, lambda: 0.0), lambda: BEGIN
        )
        api = FakeApiServer()
        with api.serve("test", routes.routes):
            answer = await api.get("/api/v1/telemetry?fields=metric")
        await reader.close()
    assert json.loads(answer.body)["data"] == [{"metric": "early"}, {"metric": "late"}]
