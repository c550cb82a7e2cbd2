"""The workers over HTTP and WebSocket: the JSON of the contract, the whole state first, then the changes."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.testing import Downstream, make_context, until
from otel_zernel_receivers.heartbeat import HeartbeatReceiver
from otel_zernel_receivers.heartbeat.fleet.fleet import Fleet
from otel_zernel_receivers.heartbeat.http.body import all_telemetry
from otel_zernel_receivers.heartbeat.http.feed import WorkerFeed
from tests.api_server import FakeApiServer, FakeConnection
from tests.receivers.heartbeat.workers import connected, heartbeat, mastering, registration

TASK = {
    "task_id": "task-0",
    "cpu_allocated": 2.0,
    "memory_allocated": 1024.0,
    "gpu_allocated": 1.0,
    "status": "running",
}


async def test_the_telemetry_of_a_worker_has_exactly_the_fields_of_the_contract() -> None:
    async with mastering(Downstream(), api=(api := FakeApiServer())) as receiver, connected(receiver) as stub:
        before = receiver.context.clock.time_ns() // 10**9
        await stub.SendHeartbeat(heartbeat("worker-1", 12.5, tasks=1, memory_usage=25, gpu_usage=90, storage_usage=5))
        answer = (await api.get("/telemetry/worker-1")).json
        assert isinstance(answer["last_update"], int)
        assert answer.pop("last_update") >= before
        assert answer == {
            "worker_id": "worker-1",
            "cpu_usage": 12.5,
            "memory_usage": 25.0,
            "gpu_usage": 90.0,
            "running_tasks": [TASK],
            "is_active": True,
        }
        assert list((await api.get("/telemetry")).json) == ["worker-1"]
        assert (await api.get("/telemetry")).json["worker-1"]["cpu_usage"] == 12.5


async def test_the_api_of_workers_has_registration_metrics_and_tasks() -> None:
    async with mastering(Downstream(), api=(api := FakeApiServer())) as receiver, connected(receiver) as stub:
        await stub.RegisterWorker(registration("a", total_cpu=8, total_gpu=4))
        await stub.SendHeartbeat(heartbeat("a", 10, tasks=1, storage_usage=40))
        await stub.SendHeartbeat(heartbeat("b"))
        for path in ("/workers", "/api/workers"):
            first, second = (await api.get(path)).json
            assert first["worker_id"] == "a"
            assert (first["worker_ip"], first["total_cpu"], first["total_gpu"]) == ("10.0.0.7", 8, 4)
            assert (first["state"], first["running_tasks"]) == ("active", 1)
            assert (second["worker_id"], "worker_ip" in second) == ("b", False)
        detail = (await api.get("/api/workers/a")).json
        assert detail["running_tasks"] == [TASK]
        assert detail["metrics"]["storage_usage"] == 40
        assert (await api.get("/api/workers/a/metrics")).json == detail["metrics"]
        assert (await api.get("/api/workers/a/tasks")).json == [TASK]
        assert (await api.get("/health")).json == {"status": "ok"}


async def test_a_body_that_the_client_has_is_not_sent_again() -> None:
    async with mastering(Downstream(), api=(api := FakeApiServer())) as receiver, connected(receiver) as stub:
        await stub.SendHeartbeat(heartbeat("a"))
        first = await api.get("/telemetry")
        known = {"if-none-match": first.headers["etag"]}
        again = await api.get("/telemetry", known)
        assert (again.status, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])
        await stub.SendHeartbeat(heartbeat("a", 50))
        later = await api.get("/telemetry", known)
        while later.status == 304:
            later = await api.get("/telemetry", known)
        assert later.json["a"]["cpu_usage"] == 50
        assert int(later.headers["content-length"]) == len(later.body)


@pytest.mark.parametrize("path", ["/telemetry/x", "/api/workers/x", "/api/workers/x/metrics", "/api/workers/x/tasks"])
async def test_an_unknown_worker_is_404_with_a_sentence(path: str) -> None:
    async with mastering(Downstream(), api=(api := FakeApiServer())):
        answer = await api.get(path)
        assert answer.status == 404
        assert answer.json["error"].startswith("there is no worker x;")


@pytest.mark.parametrize("worker_id", ['quote"back\\slash', "rack/1", "Zürich-✓", "line\nbreak"])
async def test_any_worker_id_is_json_and_a_path(worker_id: str) -> None:
    async with mastering(Downstream(), api=(api := FakeApiServer())) as receiver, connected(receiver) as stub:
        await stub.SendHeartbeat(heartbeat(worker_id))
        assert (await api.get("/telemetry")).json[worker_id]["worker_id"] == worker_id
        assert (await api.get(f"/telemetry/{quote(worker_id, safe='')}")).json["worker_id"] == worker_id


async def said(client: FakeConnection) -> Any:
    """The next message of a WebSocket, as JSON."""
    message = await client.next()
    assert message["type"] == "websocket.send"
    return json.loads(message["text"])


@pytest.mark.parametrize("path", ["/ws", "/ws/telemetry"])
async def test_a_websocket_gets_the_whole_state_and_then_only_changed_workers(path: str) -> None:
    async with mastering(Downstream(), api=(api := FakeApiServer())) as receiver, connected(receiver) as stub:
        for worker in ("a", "b"):
            await stub.SendHeartbeat(heartbeat(worker))
        async with api.websocket(path) as client:
            assert (await client.next())["type"] == "websocket.accept"
            assert set(await said(client)) == {"a", "b"}
            await stub.SendHeartbeat(heartbeat("b", 99))
            changed = await said(client)
            while changed["b"]["cpu_usage"] != 99:
                changed = await said(client)
            assert list(changed) == ["b"]


async def test_a_websocket_of_one_worker_gets_only_that_one() -> None:
    async with mastering(Downstream(), api=(api := FakeApiServer())) as receiver, connected(receiver) as stub:
        await stub.SendHeartbeat(heartbeat("a", 1))
        async with api.websocket("/ws/telemetry/a") as client:
            assert (await client.next())["type"] == "websocket.accept"
            assert (await said(client))["a"]["cpu_usage"] == 1
            await stub.SendHeartbeat(heartbeat("b", 2))
            await stub.SendHeartbeat(heartbeat("a", 3))
            changed = await said(client)
            assert (list(changed), changed["a"]["cpu_usage"]) == (["a"], 3)


async def test_a_removed_worker_is_null() -> None:
    async with (
        mastering(Downstream(), api=(api := FakeApiServer()), inactive_after="10ms", forget_after="20ms") as receiver,
        connected(receiver) as stub,
    ):
        await stub.SendHeartbeat(heartbeat("a"))
        async with api.websocket("/ws/telemetry") as client:
            assert (await client.next())["type"] == "websocket.accept"
            assert set(await said(client)) == {"a"}
            changed = await said(client)
            while changed["a"] is not None:
                assert changed["a"]["is_active"] is False
                changed = await said(client)


async def test_a_client_that_comes_again_gets_only_what_it_missed() -> None:
    async with mastering(Downstream(), api=(api := FakeApiServer())) as receiver, connected(receiver) as stub:
        for worker in ("a", "b"):
            await stub.SendHeartbeat(heartbeat(worker))
        async with api.websocket("/ws?sequence=true") as client:
            await client.next()
            first = await said(client)
        assert (first["full"], set(first["workers"])) == (True, {"a", "b"})
        await stub.SendHeartbeat(heartbeat("b"))
        async with api.websocket(f"/ws?sequence=true&since={first['seq']}") as client:
            await client.next()
            again = await said(client)
        assert (again["full"], set(again["workers"])) == (False, {"b"})
        async with api.websocket("/ws?sequence=true&since=1") as client:  # of another run of the collector
            await client.next()
            assert (await said(client))["full"] is True


async def test_a_slow_client_skips_messages_and_sees_the_latest_state() -> None:
    async with mastering(Downstream(), api=(api := FakeApiServer())) as receiver, connected(receiver) as stub:
        await stub.SendHeartbeat(heartbeat("a", 0))
        gate = asyncio.Event()
        client = SlowConnection(gate)
        client.from_client.put_nowait({"type": "websocket.connect"})
        scope = {"type": "websocket", "path": "/ws", "query_string": b"", "headers": []}
        task = asyncio.create_task(api.app(scope, client.receive, client.send))
        await until(lambda: client.blocked)
        for cpu in range(1, 51):
            await stub.SendHeartbeat(heartbeat("a", cpu))
        gate.set()
        seen = [json.loads(message["text"])["a"]["cpu_usage"] async for message in client.until_value(50)]
        assert seen[-1] == 50
        assert len(seen) <= 3
        client.from_client.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await task


class SlowConnection(FakeConnection):
    """A client whose messages wait for the gate."""

    def __init__(self, gate: asyncio.Event) -> None:
        super().__init__()
        self._gate = gate
        self.blocked = False

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "websocket.send":
            self.blocked = True
            await self._gate.wait()
        await super().send(message)

    async def until_value(self, cpu: float) -> AsyncIterator[dict[str, Any]]:
        """The messages up to the one with this usage."""
        while True:
            message = await self.next()
            if message["type"] == "websocket.send":
                yield message
                if json.loads(message["text"])["a"]["cpu_usage"] == cpu:
                    return


async def test_a_client_that_never_reads_is_disconnected_and_counted() -> None:
    clock, context = SystemClock(), make_context()
    fleet = Fleet(HeartbeatReceiver.Config(), clock)
    open_: list[int] = []
    feed = WorkerFeed(
        fleet,
        all_telemetry(fleet, clock),
        clock,
        push_interval=1,
        max_clients=1,
        drop=context.drop,
        count_clients=open_.append,
        patience=0.01,
    )
    client = SlowConnection(asyncio.Event())
    client.from_client.put_nowait({"type": "websocket.connect"})
    await feed.serve({"path_params": {}, "query_string": b""}, client.receive, client.send)
    assert context.drop.counts == {"slow_client": 1}  # type: ignore[attr-defined]
    assert open_ == [1, -1]
    assert [(await client.next())["type"] for _ in range(2)] == ["websocket.accept", "websocket.close"]


async def test_more_than_max_clients_get_503() -> None:
    async with mastering(Downstream(), api=(api := FakeApiServer()), max_clients=1), api.websocket("/ws") as first:
        assert (await first.next())["type"] == "websocket.accept"
        async with api.websocket("/ws") as second:
            answer = await second.next()
            assert (answer["type"], answer["status"]) == ("websocket.http.response.start", 503)
