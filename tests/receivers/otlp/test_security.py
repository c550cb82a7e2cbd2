"""TLS, certificates of clients, and credentials: nobody without them gets anything parsed."""

import asyncio
import shutil
import ssl
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from otel_zernel.batch import SIGNALS
from otel_zernel.errors import CannotStart
from otel_zernel.testing import make_context, until
from otel_zernel.types import Address
from otel_zernel_extensions.bearertokenauth import BearerTokenAuthExtension
from otel_zernel_receivers.otlp import OtlpReceiver
from tests.exporters.otlp.certificates import Authority, CertificateFiles
from tests.receivers.otlp.serving import PROTO, Recording, call, gauge, receiving

REQUEST = gauge().SerializeToString()
TOKEN = "correct-horse"


def port_of(receiver: OtlpReceiver, protocol: str) -> int:
    place = receiver.addresses[protocol]
    assert isinstance(place, Address)
    return place.port


def both(**options: Any) -> dict[str, Any]:
    return {name: {"endpoint": "localhost:0", **options} for name in ("grpc", "http")}


def tls(files: CertificateFiles, **more: Any) -> dict[str, Any]:
    return {"tls": {"cert_file": files.cert_file, "key_file": files.key_file, **more}}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def replace(old: CertificateFiles, new: CertificateFiles) -> None:
    for name in ("key_file", "cert_file"):
        shutil.copyfile(getattr(new, name), getattr(old, name))


async def send_grpc(receiver: OtlpReceiver, authority: Authority, client: CertificateFiles | None = None) -> None:
    target = f"localhost:{port_of(receiver, 'grpc')}"
    async with grpc.aio.secure_channel(target, authority.channel_credentials(client)) as channel:
        await call(channel)(REQUEST, timeout=60)


async def send_http(receiver: OtlpReceiver, authority: Authority, client: CertificateFiles | None = None) -> None:
    async with httpx.AsyncClient(verify=authority.client_context(client)) as sender:
        url = f"https://localhost:{port_of(receiver, 'http')}/v1/metrics"
        (await sender.post(url, content=REQUEST, headers=PROTO)).raise_for_status()


async def test_both_protocols_serve_over_tls(authority: Authority) -> None:
    downstream = Recording()
    async with receiving(downstream, both(**tls(authority.issue("localhost")))) as receiver:
        await send_grpc(receiver, authority)
        await send_http(receiver, authority)
    assert downstream.transports == ["grpc", "http"]


async def test_with_client_ca_file_only_clients_with_a_certificate_may_send(authority: Authority) -> None:
    downstream, client = Recording(), authority.issue("client")
    options = tls(authority.issue("localhost"), client_ca_file=authority.ca_file)
    async with receiving(downstream, both(**options)) as receiver:
        await send_grpc(receiver, authority, client)
        await send_http(receiver, authority, client)
        with pytest.raises(grpc.aio.AioRpcError):
            await send_grpc(receiver, authority)
        with pytest.raises(httpx.TransportError):
            await send_http(receiver, authority)
    assert downstream.point_count == 6


async def test_a_new_certificate_serves_new_connections_of_both_protocols(authority: Authority, tmp_path: Path) -> None:
    new = tmp_path / "new"
    new.mkdir()
    other, downstream = Authority(new), Recording()
    files = authority.issue("localhost")
    async with receiving(downstream, both(**tls(files, reload_interval="20ms"))) as receiver:
        replace(files, other.issue("localhost"))
        for send in (send_grpc, send_http):
            await _insist(lambda send=send: send(receiver, other))
    assert sorted(set(downstream.transports)) == ["grpc", "http"]


async def _insist(send: Any) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await send()
            except (grpc.aio.AioRpcError, httpx.TransportError):
                await asyncio.sleep(0.02)
            else:
                return


async def test_a_minimum_version_applies_to_grpc_too(authority: Authority) -> None:
    options = {"grpc": {"endpoint": "localhost:0", **tls(authority.issue("localhost"), min_version="1.3")}}
    async with receiving(Recording(), options) as receiver:
        context = authority.client_context()
        context.set_alpn_protocols(["h2"])
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(OSError):  # noqa: PT011  # ssl.SSLError, or a reset
            await asyncio.open_connection("localhost", port_of(receiver, "grpc"), ssl=context)


async def test_a_missing_certificate_is_an_error_that_names_the_file() -> None:
    options = both(tls={"cert_file": "/nowhere.pem", "key_file": "/nowhere.key"})
    with pytest.raises(CannotStart, match=r"protocols::grpc::tls::cert_file: cannot read /nowhere.pem"):
        async with receiving(Recording(), options):
            pass


class Guarded:
    """A receiver that wants a token."""

    def __init__(self) -> None:
        config = BearerTokenAuthExtension.Config.model_validate({"token": TOKEN})
        self.extension = BearerTokenAuthExtension(config, make_context("extensions", "bearertokenauth"))
        self.downstream = Recording()

    def serve(self, **options: Any) -> Any:
        protocols = both(auth={"authenticator": "bearertokenauth"})
        return receiving(self.downstream, protocols, extensions={"bearertokenauth": self.extension}, **options)


@pytest.mark.parametrize("credentials", ["", "Bearer wrong", f"Basic {TOKEN}"])
async def test_a_request_without_valid_credentials_is_refused_before_it_is_decoded(credentials: str) -> None:
    guarded = Guarded()
    async with guarded.extension, guarded.serve(signals=frozenset({"metrics"})) as receiver:
        headers = {**PROTO, "authorization": credentials}
        async with httpx.AsyncClient(base_url=f"http://{receiver.addresses['http']}") as client:
            for path in ("/v1/metrics", "/v1/traces", "/nowhere"):
                answer = await client.post(path, content=b"\xff damaged", headers=headers)
                assert (answer.status_code, answer.headers["www-authenticate"][:6]) == (401, "Bearer")
        async with grpc.aio.insecure_channel(str(receiver.addresses["grpc"])) as channel:
            for signal in SIGNALS:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call(channel, signal)(b"\xff damaged", metadata=[("authorization", credentials)])
                assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
                assert TOKEN not in str(refused.value)
    assert guarded.downstream.batches == []


async def test_a_request_with_the_token_is_accepted_unless_it_has_other_credentials_too() -> None:
    """A proxy in front may have checked the other ones."""
    guarded = Guarded()
    async with guarded.extension, guarded.serve() as receiver:
        authorized = {**PROTO, "authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(base_url=f"http://{receiver.addresses['http']}") as client:
            for before, status in ([], 200), ([("authorization", "Bearer x")], 401):
                headers = [*before, *authorized.items()]
                assert (await client.post("/v1/metrics", content=REQUEST, headers=headers)).status_code == status
        async with grpc.aio.insecure_channel(str(receiver.addresses["grpc"])) as channel:
            await call(channel)(REQUEST, metadata=[("authorization", authorized["authorization"])])
    assert guarded.downstream.point_count == 6


async def test_health_needs_no_credentials() -> None:
    guarded = Guarded()
    async with guarded.extension, guarded.serve() as receiver:
        channel = grpc.aio.insecure_channel(str(receiver.addresses["grpc"]))
        answer = await HealthStub(channel).Check(HealthCheckRequest())
        await channel.close(None)
    assert answer.status == HealthCheckResponse.SERVING


async def test_a_parameter_of_the_url_can_carry_the_credentials() -> None:
    guarded = Guarded()
    auth = {"authenticator": "bearertokenauth", "request_params": ["Authorization"]}
    protocols = {"http": {"endpoint": "localhost:0", "auth": auth}}
    extensions = {"bearertokenauth": guarded.extension}
    async with guarded.extension, receiving(guarded.downstream, protocols, extensions=extensions) as receiver:
        url = f"http://{receiver.addresses['http']}/v1/metrics"
        async with httpx.AsyncClient() as client:
            good = await client.post(url, params={"Authorization": f"Bearer {TOKEN}"}, content=REQUEST, headers=PROTO)
            bad = await client.post(url, params={"Authorization": "Bearer x"}, content=REQUEST, headers=PROTO)
            many = await client.post(f"{url}?{'a=1&' * 101}", content=REQUEST, headers=PROTO)
    assert (good.status_code, bad.status_code, many.status_code) == (200, 401, 401)


async def test_refused_requests_are_counted_by_reason() -> None:
    counted: list[tuple[int, Any]] = []

    class Counter:
        def add(self, amount: int, attributes: Any) -> None:
            counted.append((amount, attributes))

    class Meter:
        def create_counter(self, name: str, *_: Any) -> Counter:
            assert name == "zernel.otlp.refused_requests"
            return Counter()

    async with receiving(Recording(), meter=Meter()) as receiver:  # type: ignore[arg-type]  # only counters
        url = f"http://{receiver.addresses['http']}/v1/metrics"
        async with httpx.AsyncClient() as client:
            await client.post(url, content=b"\xff", headers=PROTO)
        async with grpc.aio.insecure_channel(str(receiver.addresses["grpc"])) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await call(channel)(b"\xff")
            with pytest.raises(grpc.aio.AioRpcError):
                await call(channel)(bytes(5 << 20))
        await until(lambda: len(counted) == 3)
    reasons = (("undecodable", "http"), ("undecodable", "grpc"), ("too_large", "grpc"))
    assert counted == [(1, {"reason": reason, "transport": transport}) for reason, transport in reasons]
