"""Runs Prometheus and promtool: Debian's version 2, and version 3, which `install-go-peers.sh` builds."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.interop.installed import installed_peer

_MODULE = "0.316.0"
"""The version of the Go module of Prometheus 3.16."""
LATE = "context deadline exceeded"
"""The error of a scrape that took more than a second, on a busy machine."""


@dataclass(frozen=True)
class Prometheus:
    """The HTTP API of a running Prometheus."""

    client: httpx.AsyncClient

    async def get(self, path: str, **parameters: str) -> Any:
        response = await self.client.get(f"/api/v1/{path}", params=parameters)
        return response.raise_for_status().json()["data"]

    async def series(self, query: str) -> list[tuple[dict[str, str], float]]:
        """The labels and values of a query's result."""
        found = (await self.get("query", query=query))["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    async def value(self, query: str) -> float:
        """The value of the only series in a query's result."""
        [(_, value)] = await self.series(query)
        return value

    async def until(self, query: str, value: float) -> None:
        """Returns when the result of a query is one series with this value."""
        async with asyncio.timeout(60):
            while [one for _, one in await self.series(query)] != [value]:
                await self.fail_on_errors()
                await asyncio.sleep(0.1)

    async def scraped(self, *jobs: str) -> None:
        """Returns when every job was scraped without an error."""
        async with asyncio.timeout(60):
            while {labels["job"] for labels, _ in await self.series("up == 1")} < set(jobs):
                await self.fail_on_errors()
                await asyncio.sleep(0.1)

    async def fail_on_errors(self) -> None:
        targets = (await self.get("targets"))["activeTargets"]
        errors = [target["lastError"] for target in targets if target["lastError"]]
        assert not [error for error in errors if LATE not in error], errors


def find_prometheus_3() -> Path:
    """The program. Without it, the test is skipped or fails."""
    return installed_peer(f"prometheus-{_MODULE}", "Prometheus 3") / "prometheus"


@asynccontextmanager
async def scraping(
    program: Path, folder: Path, port: int, features: tuple[str, ...] = ("exemplar-storage",), /, **jobs: int
) -> AsyncIterator[Prometheus]:
    """A Prometheus that scrapes the jobs' ports every second."""
    scrapes = [
        {"job_name": job, "honor_labels": True, "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
        for job, target in jobs.items()
    ]
    async with configured(program, folder, port, scrapes, features) as prometheus:
        yield prometheus


@asynccontextmanager
async def configured(
    program: Path,
    folder: Path,
    port: int,
    scrapes: Sequence[Mapping[str, Any]],
    features: tuple[str, ...] = ("exemplar-storage",),
    *more: str,
    rules: Sequence[Path] = (),
    more_config: Mapping[str, Any] | None = None,
) -> AsyncIterator[Prometheus]:
    """A Prometheus with these scrape configurations and rules, every second.

    `more` are further arguments, `more_config` further sections of its configuration.
    """
    config = folder / "prometheus.yaml"
    settings = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [*scrapes],
        **(more_config or {}),
    }
    config.write_text(yaml.safe_dump(settings))
    arguments = [f"--config.file={config}", f"--storage.tsdb.path={folder}/data"]
    arguments.append("--scrape.discovery-reload-interval=100ms")  # of 5 s: targets would begin up to 10 s late
    arguments += [f"--web.listen-address=127.0.0.1:{port}", f"--enable-feature={','.join(features)}", *more]
    with (folder / "prometheus.log").open("w") as log:
        process = await asyncio.create_subprocess_exec(program, *arguments, stdout=log, stderr=log)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            await until_ready(client, "/-/ready")
            yield Prometheus(client)
    finally:
        process.terminate()
        await process.wait()


async def until_ready(client: httpx.AsyncClient, url: str) -> None:
    """Returns when the URL answers with 200."""
    async with asyncio.timeout(60):
        while True:
            try:
                if (await client.get(url)).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)


async def promtool(program: Path, page: bytes) -> str:
    """The complaints of `promtool check metrics` about a page."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(program, "check", "metrics", stdin=pipe, stdout=pipe, stderr=pipe)
    said = await process.communicate(page)
    return b"".join(said).decode() if process.returncode else ""
