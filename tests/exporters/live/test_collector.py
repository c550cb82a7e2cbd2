"""The live state of a running collector: a recorded run is replayed, and curl reads the stream."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from docs.catalogue import ROOT
from otel_zernel.config.load import load
from otel_zernel.config.schema import validate
from otel_zernel.engine.service import Service
from otel_zernel.registry import Registry
from otel_zernel.testing import until
from otel_zernel_extensions.api import ApiExtension
from otel_zernel_libraries.serving.api.live import apply_delta

EXAMPLE = ROOT / "examples" / "live_replay.yaml"


@asynccontextmanager
async def replaying(speed: int) -> AsyncIterator[str]:
    """The URL of a collector that replays the recorded run so many times as fast."""
    changes = f"""
receivers: {{otlp_json_file: {{include: ["{ROOT}/examples/training_spans.jsonl"], speed: {speed}}}}}
processors: {{phases: {{bridge: {0.5 / speed}ms, traces: {{max_steps: 1000}}}}}}
exporters: {{live: {{push_interval: 100ms}}}}
extensions: {{api: {{endpoint: "localhost:0"}}}}
service: {{telemetry: {{metrics: {{level: none}}}}}}
"""
    settings = validate(load([str(EXAMPLE), f"yaml:{changes}"], [], {}), Registry.installed(), {})
    service, stop = Service(settings), asyncio.Event()
    task = asyncio.create_task(service.run(stop))
    try:
        await until(lambda: service.graph.health.up_since or task.done())
        api = service.graph.extensions["api"]
        assert isinstance(api, ApiExtension)
        yield f"http://127.0.0.1:{api.address.port}" if api.address else ""
    finally:
        stop.set()
        await task


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl")
async def test_curl_follows_a_replayed_run_until_all_its_steps_are_there() -> None:
    async with replaying(50) as url:
        curl = await asyncio.create_subprocess_exec(
            *("curl", "-sN", f"{url}/api/live/stream"), stdout=asyncio.subprocess.PIPE, limit=1 << 24
        )
        assert curl.stdout
        state: dict[str, Any] = {}
        try:
            async with asyncio.timeout(60):
                while not any(_is_whole(rank) for rank in state.get("ranks", {}).values()):
                    event, data = await _event(curl.stdout)
                    if event == "state":
                        state = data
                    elif event == "delta":
                        apply_delta(state, data)
        finally:
            curl.kill()
            await curl.wait()
    assert len(state["ranks"]) == 1
    assert state["collector"]["queues"].keys() == {"live"}
    assert state["collector"]["up_since"] <= state["time"]


def _is_whole(rank: dict[str, Any]) -> bool:
    """Whether all steps are there, and the verdict on them. The verdict may come with a later report."""
    name: str = rank.get("verdict", {}).get("name", "")
    return rank.get("steps") == 150 and name == "input_bound"


async def _event(lines: asyncio.StreamReader) -> tuple[str, Any]:
    """The name and the data of the next event."""
    event: dict[str, str] = {}
    while line := (await lines.readline()).decode().rstrip("\n"):
        name, _, value = line.partition(": ")
        event[name] = value
    return event.get("event", ""), json.loads(event.get("data", "null"))
