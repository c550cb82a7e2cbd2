"""The `api` extension serves the workers to httpx and to the client of `websockets`."""

import json
from typing import Any

import httpx
import websockets

from otel_zernel.clock import SystemClock
from otel_zernel.testing import Downstream, make_context
from otel_zernel_extensions.api import ApiExtension
from tests.receivers.heartbeat.workers import connected, heartbeat, mastering


async def test_httpx_and_websockets_see_a_worker_and_its_change() -> None:
    config = ApiExtension.Config.model_validate({"endpoint": "localhost:0"})
    async with ApiExtension(config, make_context("extensions", "api", clock=SystemClock())) as api:
        context = make_context("receivers", "heartbeat", clock=SystemClock(), extensions={"api": api})
        options: dict[str, Any] = {"context": context, "api": api}
        async with mastering(Downstream(), **options) as receiver, connected(receiver) as stub:
            await stub.SendHeartbeat(heartbeat("rack/1 a", 1, tasks=1))
            address = api.address
            assert address
            async with httpx.AsyncClient(base_url=f"http://localhost:{address.port}") as client:
                telemetry = (await client.get("/telemetry")).json()
                assert telemetry["rack/1 a"]["cpu_usage"] == 1
                one = await client.get("/telemetry/rack%2F1%20a")
                assert (one.status_code, one.json()) == (200, telemetry["rack/1 a"])
                assert (await client.get("/api/workers/x/tasks")).status_code == 404

            async with websockets.connect(f"ws://localhost:{address.port}/ws/telemetry") as feed:
                assert json.loads(await feed.recv()) == telemetry
                await stub.SendHeartbeat(heartbeat("rack/1 a", 2))
                assert json.loads(await feed.recv())["rack/1 a"]["cpu_usage"] == 2
