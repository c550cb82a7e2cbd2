"""Runs VictoriaMetrics: Debian's 1.79, and 1.151, which `install-go-peers.sh` builds. Its HTTP API is Prometheus'."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.interop.installed import find_peer, installed_peer
from tests.interop.prometheus import Prometheus, until_ready

RELEASES = ("1.79", "1.151")


def find_victoria_metrics(release: str) -> Path:
    """The program. Without it, the test is skipped or fails."""
    if release == RELEASES[0]:
        return find_peer("victoria-metrics")
    return installed_peer(f"victoria-metrics-{release}.0", "VictoriaMetrics 1.151") / "victoria-metrics"


class VictoriaMetrics(Prometheus):
    """Its queries see all that it has received. Else an answer of "nothing" would be remembered for ten seconds."""

    async def get(self, path: str, **parameters: str) -> Any:
        (await self.client.get("/internal/force_flush")).raise_for_status()
        return await super().get(path, **parameters)


@asynccontextmanager
async def victoria(program: Path, folder: Path, port: int) -> AsyncIterator[VictoriaMetrics]:
    """A running VictoriaMetrics with its defaults, except that a query sees the newest samples at once."""
    arguments = (f"-storageDataPath={folder}/victoria", f"-httpListenAddr=127.0.0.1:{port}")
    with (folder / "victoria.log").open("w") as log:
        process = await asyncio.create_subprocess_exec(
            program, *arguments, "-search.latencyOffset=0", "-search.disableCache", stdout=log, stderr=log
        )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            await until_ready(client, "/health")
            yield VictoriaMetrics(client)
    finally:
        process.terminate()
        await process.wait()
