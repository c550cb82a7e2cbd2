"""Runs the collector as a process of its own."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import yaml

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

    `config`, merged into the file `example`, needs a prometheus exporter on that port. The collector's log is
    `collector.log` in the folder.
    """
    path = folder / "collector.yaml"
    path.write_text(yaml.safe_dump(dict(config)))
    with (folder / "collector.log").open("w") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "otel_zernel", "run"),
            *(("--config", str(example)) if example else ()),
            *("--config", str(path)),
            *("--set", "service.telemetry.metrics.level=none"),
            stdout=log,
            stderr=log,
            env={**os.environ, **(environ or {})},
        )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{page}") as client:
            await until_ready(client, "/health")
            yield client
    finally:
        process.terminate()
        assert await process.wait() == 0, (folder / "collector.log").read_text()


async def page_with(client: httpx.AsyncClient, *parts: str) -> str:
    """The page, once it has all these texts."""
    async with asyncio.timeout(60):
        while True:
            page = (await client.get("/metrics")).text
            if all(part in page for part in parts):
                return page
            await asyncio.sleep(0.1)
