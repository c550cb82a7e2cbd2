"""Any number of gateways serve one store: a client may ask another one for each page."""

from otel_zernel_libraries.store.config import WritableStoreConfig
from tests.extensions.query.serving import gauge, serving


async def test_gateways_on_one_store_are_interchangeable(settings: WritableStoreConfig) -> None:
    async with serving(settings) as one, serving(settings) as other:
        await one.write(gauge("early", [1.0, 2.0, 3.0]))
        page = await one.get("/telemetry?page_size=2&fields=value")
        same = await other.get("/telemetry?page_size=2&fields=value")
        assert (same.body, same.headers["etag"]) == (page.body, page.headers["etag"])
        await other.write(gauge("late", [4.0]))
        data = await other.data(f"/telemetry?page_size=2&fields=value&cursor={page.json['next_cursor']}")
        assert data == [{"value": 3.0}]
        assert await one.data("/telemetry?fields=value&metric=late") == [{"value": 4.0}]
