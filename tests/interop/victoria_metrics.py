"""Runs Debian's VictoriaMetrics. Its HTTP API is that of Prometheus."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from tests.interop.prometheus import Prometheus, until_ready


@asynccontextmanager
async def victoria(program: Path, folder: Path, port: int) -> AsyncIterator[Prometheus]:
    """A running VictoriaMetrics with its defaults, except that a query sees the newest samples at once."""
    arguments = (f"-storageDataPath={folder}/victoria", f"-httpListenAddr=127.0.0.1:{port}")
    with (folder / "victoria.log").open("w") as log:
        process = await asyncio.create_subprocess_exec(
            program, *arguments, "-search.latencyOffset=0", "-search.disableCache", stdout=log, stderr=log
        )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            await until_ready(client, "/health")
            yield Prometheus(client)
    finally:
        process.terminate()
        await process.wait()
