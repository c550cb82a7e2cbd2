"""A collector with a page for Prometheus."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from tests.collectors import collector
from tests.interop.prometheus import until_ready


@asynccontextmanager
async def collecting(
    folder: Path,
    page: int,
    config: Mapping[str, object],
    environ: Mapping[str, str] | None = None,
    example: Path | None = None,
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the collector's Prometheus page, on the port `page`. At the end the collector stops without an error.

    `config`, merged into the file `example`, needs a prometheus exporter on that port.
    """
    options = ["--config", str(example)] if example else []
    async with collector(folder, dict(config), options=options, environ=environ) as running:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{page}") as client:
            await until_ready(client, "/health")
            yield client
        running.process.terminate()
        assert await running.ended() == 0, running.log


async def page_with(client: httpx.AsyncClient, *parts: str, within: float = 60.0) -> str:
    """The page, once it has all these texts. Raises TimeoutError if it has not within so many seconds."""
    async with asyncio.timeout(within):
        while True:
            page = (await client.get("/metrics")).text
            if all(part in page for part in parts):
                return page
            await asyncio.sleep(0.1)
