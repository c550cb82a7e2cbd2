"""A series that is stored between the catalogue's refresh and the query of a page is on the page."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from otel_zernel_extensions.query.config import QueryConfig
from otel_zernel_extensions.query.open_store import OpenStore
from otel_zernel_extensions.query.routes import QueryRoutes
from otel_zernel_libraries.serving.api.testing import FakeApiServer
from otel_zernel_libraries.store.config import WritableStoreConfig
from otel_zernel_libraries.store.sqlite.sqlite_reader import SqliteReader
from tests.extensions.query.serving import BEGIN, Served, gauge, serving
from tests.libraries.store.given import sqlite_config


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
