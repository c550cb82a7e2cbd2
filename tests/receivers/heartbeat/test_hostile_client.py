"""A client that sends in the name of another worker: it is refused, and the worker goes on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from otel_zernel.testing import Downstream, make_context, until
from otel_zernel.types import Address
from otel_zernel_extensions.bearertokenauth import BearerTokenAuthExtension
from otel_zernel_libraries.cluster.messages import WORKER_TOKEN
from tests.api_server import FakeApiServer
from tests.collectors import collector
from tests.exporters.otlp.certificates import Authority, CertificateFiles
from tests.receivers.heartbeat.test_worker_and_master import WORKER, Ports, master, worker
from tests.receivers.heartbeat.workers import connected, connected_to, generated, heartbeat, mastering, registration

SENTENCE = "another client sends for the worker worker-1; give each worker its own worker_id"


async def refused(call: Awaitable[Any]) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await call
    assert failure.value.code() == grpc.StatusCode.ALREADY_EXISTS
    assert SENTENCE in (failure.value.details() or "")


def token(text: str) -> Any:
    return [(WORKER_TOKEN, text)]


async def test_a_stranger_neither_beats_nor_registers_for_a_connected_worker() -> None:
    async with mastering(Downstream(), api=(api := FakeApiServer())) as receiver:
        async with connected(receiver) as stub, connected(receiver) as stranger:
            assert (await stub.RegisterWorker(registration(total_cpu=8))).success
            assert (await stub.SendHeartbeat(heartbeat(cpu=25))).success
            await refused(stranger.SendHeartbeat(heartbeat(cpu=99)))
            await refused(stranger.RegisterWorker(registration(total_cpu=1)))
            stream = stranger.StreamHeartbeats()
            await stream.write(heartbeat(cpu=99))
            await refused(stream.read())
            found = (await api.get("/api/workers/worker-1")).json
            assert (found["metrics"]["cpu_usage"], found["total_cpu"]) == (25, 8)
            counts = receiver.context.drop.counts  # type: ignore[attr-defined]
            await until(lambda: counts["taken"] == 3)
            assert (await stub.SendHeartbeat(heartbeat(cpu=30))).success

        async def again() -> bool:
            async with connected(receiver) as successor:
                try:
                    return bool((await successor.SendHeartbeat(heartbeat(cpu=35))).success)
                except grpc.aio.AioRpcError:  # the end of the old connection has not arrived yet
                    return False

        async with asyncio.timeout(60):
            while not await again():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert (await api.get("/telemetry/worker-1")).json["cpu_usage"] == 35


async def test_a_worker_with_a_token_goes_on_at_another_connection_while_its_first_one_is_open() -> None:
    async with mastering(Downstream()) as receiver, connected(receiver) as first, connected(receiver) as second:
        assert (await first.SendHeartbeat(heartbeat(), metadata=token("a"))).success
        assert (await second.SendHeartbeat(heartbeat(), metadata=token("a"))).success
        await refused(second.SendHeartbeat(heartbeat(), metadata=token("b")))
        await refused(second.SendHeartbeat(heartbeat()))


async def test_a_worker_with_checked_credentials_is_recognized_by_them() -> None:
    context = make_context("extensions", "bearertokenauth")
    auth = BearerTokenAuthExtension(BearerTokenAuthExtension.Config.model_validate({"tokens": ["a", "b"]}), context)
    options: dict[str, Any] = {"auth": {"authenticator": "auth"}}
    async with (
        auth,
        mastering(Downstream(), extensions={"auth": auth}, **options) as receiver,
        connected(receiver) as first,
        connected(receiver) as second,
    ):
        bearer = [("authorization", "Bearer a")]
        assert (await first.SendHeartbeat(heartbeat(), metadata=[*bearer, *token("x")])).success
        assert (await second.SendHeartbeat(heartbeat(), metadata=[*bearer, *token("y")])).success
        await refused(second.SendHeartbeat(heartbeat(), metadata=[("authorization", "Bearer b"), *token("x")]))


async def test_a_worker_needs_a_certificate_if_there_is_an_authority_and_is_recognized_by_its_names(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    server = authority.issue("localhost")
    tls = {"cert_file": server.cert_file, "key_file": server.key_file, "client_ca_file": authority.ca_file}
    certificates = [authority.issue(*names) for names in (("w",), ("w", "renewed"), ("other",))]

    @asynccontextmanager
    async def using(address: Address, files: CertificateFiles | None) -> AsyncIterator[Any]:
        credentials = authority.channel_credentials(files)
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.secure_channel(f"localhost:{address.port}", credentials, options) as channel:
            yield generated()[1].MasterWorkerStub(channel)

    async with mastering(Downstream(), tls=tls) as receiver:
        assert receiver.address
        async with (
            using(receiver.address, certificates[0]) as stub,
            using(receiver.address, certificates[1]) as renewed,
            using(receiver.address, certificates[2]) as stranger,
            using(receiver.address, None) as nobody,
        ):
            assert (await stub.SendHeartbeat(heartbeat(), timeout=60)).success
            assert (await renewed.SendHeartbeat(heartbeat(), timeout=60)).success
            await refused(stranger.SendHeartbeat(heartbeat(), timeout=60))
            with pytest.raises(grpc.aio.AioRpcError):
                await nobody.SendHeartbeat(heartbeat("other"), timeout=60)


async def test_two_collectors_with_one_id_do_not_mix_and_the_second_follows_the_first(tmp_path: Path) -> None:
    ports = Ports()
    patient = master(ports, inactive_after="1m")  # longer than the test: only the end of the connection counts
    async with (
        collector(tmp_path / "master", patient, ports.workers, ports.api),
        collector(tmp_path / "first", worker(ports, worker_ip="10.0.0.1")) as first,
    ):
        await until(lambda: ports.state() == "active", 60)
        other = worker(ports, worker_ip="10.0.0.2")
        del other["service"]["telemetry"]  # its port is that of the first
        async with collector(tmp_path / "second", other):
            log = tmp_path / "second" / "log"
            await until(lambda: SENTENCE in log.read_text(), 60)
            async with connected_to(Address("127.0.0.1", ports.workers)) as stranger:
                await refused(stranger.SendHeartbeat(heartbeat(WORKER)))
            assert ports.get("/workers")[0]["worker_ip"] == "10.0.0.1"
            first.kill()
            await until(lambda: "answers the heartbeats" in log.read_text(), 60)
            assert ports.get("/workers")[0]["worker_ip"] == "10.0.0.2"
    text = log.read_text()
    assert "The master accepts no heartbeats. The next attempt is within 30 s" in text
    assert text.count(SENTENCE) == 1
