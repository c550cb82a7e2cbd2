"""Requests are spread over all addresses of a host, and over those that come later."""

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

import pytest

from otel_zernel.component import Exporter
from otel_zernel.errors import Retryable
from otel_zernel.testing import FakeClock, make_context
from otel_zernel_exporters.otlp import OtlpGrpcExporter, OtlpHttpExporter
from otel_zernel_exporters.otlp.config import OtlpGrpcConfig, OtlpHttpConfig
from otel_zernel_libraries.clients.addresses import RENEWAL, Addresses
from tests.exporters.otlp.certificates import Authority
from tests.exporters.otlp.peers import GrpcSink, metrics_batch, serve_raw

GATEWAYS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


class Names:
    """A resolver whose answers the test changes."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.broken = False
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked += 1
        if self.broken:
            raise OSError(-2, "Name or service not known")
        return self.addresses


class Gateways:
    """OTLP servers at several addresses and one port. `received` counts the requests of each."""

    def __init__(self) -> None:
        self.received: Counter[str] = Counter()
        self.names: list[str] = []
        """The `Host` or `:authority` of the requests."""

    def taken(self) -> dict[str, int]:
        """The requests since the last call."""
        taken, self.received = dict(self.received), Counter()
        return taken

    @asynccontextmanager
    async def serve_http(self) -> AsyncIterator[int]:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while head := await reader.readuntil(b"\r\n\r\n"):
                fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
                await reader.readexactly(int(fields[b"content-length"]))
                self.received[writer.get_extra_info("sockname")[0]] += 1
                self.names.append(fields[b"host"].decode())
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

        async with serve_raw(answer, host="0.0.0.0") as port:  # every address of the loopback
            yield port

    @asynccontextmanager
    async def serve_grpc(self, gateways: tuple[str, ...] = GATEWAYS) -> AsyncIterator[int]:
        port, sinks = 0, {address: GrpcSink() for address in gateways}
        async with AsyncExitStack() as stack:
            for address, sink in sinks.items():
                port = await stack.enter_async_context(sink.serve(host=address, port=port))
            self.sinks = sinks
            yield port

    def count_grpc(self) -> dict[str, int]:
        """The requests of each gRPC gateway since the last call."""
        counts = {address: len(sink.requests) for address, sink in self.sinks.items() if sink.requests}
        for sink in self.sinks.values():
            sink.requests.clear()
        return counts


async def send(exporter: Exporter, times: int) -> None:
    for _ in range(times):
        await exporter.export(metrics_batch())


async def test_http_requests_go_to_every_address_in_turn() -> None:
    gateways, names = Gateways(), Names(*GATEWAYS)
    async with gateways.serve_http() as port:
        config = OtlpHttpConfig(endpoint=f"http://gateway:{port}")
        async with OtlpHttpExporter(config, make_context("exporters"), names) as exporter:
            await send(exporter, 6)
    assert gateways.taken() == dict.fromkeys(GATEWAYS, 2)
    assert set(gateways.names) == {f"gateway:{port}"}
    assert names.asked == 1


@pytest.mark.parametrize("transport", ["http", "grpc"])
async def test_new_gateways_are_found_and_old_ones_left(transport: str) -> None:
    clock, gateways, names = FakeClock(), Gateways(), Names("127.0.0.1")
    context = make_context("exporters", clock=clock)
    async with gateways.serve_http() if transport == "http" else gateways.serve_grpc() as port:
        endpoint = f"http://gateway:{port}"
        exporter = (
            OtlpHttpExporter(OtlpHttpConfig(endpoint=endpoint), context, names)
            if transport == "http"
            else OtlpGrpcExporter(OtlpGrpcConfig(endpoint=endpoint), context, names)
        )
        taken = gateways.taken if transport == "http" else gateways.count_grpc
        async with exporter:
            await send(exporter, 3)
            assert taken() == {"127.0.0.1": 3}
            names.addresses = list(GATEWAYS)
            clock.advance(RENEWAL)
            await send(exporter, 6)
            assert taken() == dict.fromkeys(GATEWAYS, 2)
            names.addresses = ["127.0.0.3"]
            clock.advance(RENEWAL)
            await send(exporter, 3)
            assert taken() == {"127.0.0.3": 3}


async def test_http_passes_over_an_address_without_a_server() -> None:
    gateways = Gateways()
    async with gateways.serve_http() as port:
        config = OtlpHttpConfig(endpoint=f"http://gateway:{port}")
        names = Names("127.0.0.1", "::1")  # nobody listens on IPv6
        async with OtlpHttpExporter(config, make_context("exporters"), names) as exporter:
            await send(exporter, 4)
    assert gateways.taken() == {"127.0.0.1": 4}


async def test_http_checks_certificates_by_the_name_and_not_by_the_address(authority: Authority) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()

    tls = {"ca_file": authority.ca_file}
    server = authority.issue("gateway.example").server_context()
    async with serve_raw(answer, ssl=server) as port:
        config = OtlpHttpConfig.model_validate({"endpoint": f"https://gateway.example:{port}", "tls": tls})
        async with OtlpHttpExporter(config, make_context("exporters"), Names("127.0.0.1")) as exporter:
            await exporter.export(metrics_batch())
        other = config.model_copy(update={"endpoint": f"https://other.example:{port}"})
        async with OtlpHttpExporter(other, make_context("exporters"), Names("127.0.0.1")) as exporter:
            with pytest.raises(Retryable, match=r"certificate is not valid for 'other\.example'"):
                await exporter.export(metrics_batch())


async def test_http_names_a_host_that_cannot_be_resolved() -> None:
    config, names = OtlpHttpConfig(endpoint="http://gateway:4318/x?token=geheim"), Names()
    names.broken = True
    async with OtlpHttpExporter(config, make_context("exporters"), names) as exporter:
        with pytest.raises(Retryable, match="cannot resolve the host: Name or service not known") as caught:
            await exporter.export(metrics_batch())
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("form", ["http://gateway:{}", "dns:///gateway:{}", "dns:gateway:{}"])
async def test_grpc_requests_go_to_every_address_in_turn(form: str) -> None:
    gateways = Gateways()
    async with gateways.serve_grpc() as port:
        config = OtlpGrpcConfig.model_validate({"endpoint": form.format(port), "tls": {"insecure": True}})
        async with OtlpGrpcExporter(config, make_context("exporters"), Names(*GATEWAYS)) as exporter:
            await send(exporter, 6)
        assert gateways.count_grpc() == dict.fromkeys(GATEWAYS, 2)


async def test_grpc_spreads_over_listed_addresses() -> None:
    gateways = Gateways()
    async with gateways.serve_grpc() as port:
        listed = ",".join(f"{address}:{port}" for address in GATEWAYS)
        config = OtlpGrpcConfig.model_validate({"endpoint": f"ipv4:{listed}", "tls": {"insecure": True}})
        async with OtlpGrpcExporter(config, make_context("exporters")) as exporter:
            await send(exporter, 6)
        assert gateways.count_grpc() == dict.fromkeys(GATEWAYS, 2)


async def test_grpc_passes_over_an_address_without_a_server() -> None:
    gateways = Gateways()
    async with gateways.serve_grpc(GATEWAYS[:2]) as port:
        config = OtlpGrpcConfig(endpoint=f"http://gateway:{port}")
        async with OtlpGrpcExporter(config, make_context("exporters"), Names(*GATEWAYS)) as exporter:
            await send(exporter, 6)
        assert sum(gateways.count_grpc().values()) == 6


async def test_grpc_picks_the_first_address_if_asked_to() -> None:
    gateways = Gateways()
    async with gateways.serve_grpc() as port:
        listed = ",".join(f"{address}:{port}" for address in GATEWAYS)
        fields = {"endpoint": f"ipv4:{listed}", "tls": {"insecure": True}, "balancer_name": "pick_first"}
        async with OtlpGrpcExporter(OtlpGrpcConfig.model_validate(fields), make_context("exporters")) as exporter:
            await send(exporter, 6)
        assert list(gateways.count_grpc().values()) == [6]


@pytest.mark.parametrize("name", ["gateway.example", "other.example"])
async def test_grpc_checks_certificates_by_the_name_and_not_by_the_address(name: str, authority: Authority) -> None:
    sink, tls = GrpcSink(), {"ca_file": authority.ca_file}
    credentials = authority.issue("gateway.example").server_credentials()
    async with sink.serve(credentials, host="127.0.0.1") as port:
        config = OtlpGrpcConfig.model_validate({"endpoint": f"{name}:{port}", "tls": tls})
        async with OtlpGrpcExporter(config, make_context("exporters"), Names("127.0.0.1")) as exporter:
            if name == "gateway.example":
                await exporter.export(metrics_batch())
            else:
                with pytest.raises(Retryable):
                    await exporter.export(metrics_batch())
    assert len(sink.requests) == (name == "gateway.example")


class NameServer(asyncio.DatagramProtocol):
    """A DNS server that knows one name."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, query: bytes, sender: tuple[str, int]) -> None:
        end = query.index(b"\0", 12) + 5
        kind = struct.unpack(">H", query[end - 4 : end - 2])[0]
        found = self._addresses if kind == 1 else []  # 1: IPv4 address
        header = query[:2] + struct.pack(">HHHHH", 0x8180, 1, len(found), 0, 0)
        records = (
            b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + socket.inet_aton(address) for address in found
        )  # RFC 1035, 4.1.3
        self._transport.sendto(header + query[12:end] + b"".join(records), sender)


async def test_grpc_spreads_over_the_addresses_of_a_name_server() -> None:
    gateways, loop = Gateways(), asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: NameServer(list(GATEWAYS)), ("127.0.0.1", 0))
    dns_port = transport.get_extra_info("sockname")[1]
    async with gateways.serve_grpc() as port:
        endpoint = f"dns://127.0.0.1:{dns_port}/gateway.example:{port}"
        config = OtlpGrpcConfig.model_validate({"endpoint": endpoint, "tls": {"insecure": True}})
        async with OtlpGrpcExporter(config, make_context("exporters")) as exporter:
            seen: set[str] = set()
            for _ in range(1000):
                await send(exporter, 1)
                seen |= gateways.count_grpc().keys()
                if len(seen) == len(GATEWAYS):
                    break
        assert seen == set(GATEWAYS)
    transport.close()


async def test_addresses_stay_in_use_while_the_name_cannot_be_resolved() -> None:
    clock, names = FakeClock(), Names("10.0.0.1", "10.0.0.2")
    addresses = Addresses("gateway", 1, clock, names)
    await addresses.in_turn()
    names.broken = True
    clock.advance(RENEWAL)
    assert sorted(await addresses.in_turn()) == ["10.0.0.1", "10.0.0.2"]


async def test_an_address_that_failed_comes_last_until_the_name_is_resolved_again() -> None:
    clock, names = FakeClock(), Names("10.0.0.1", "10.0.0.2", "10.0.0.3")
    addresses = Addresses("gateway", 1, clock, names)
    await addresses.in_turn()
    addresses.fail("10.0.0.2")
    assert [(await addresses.in_turn())[-1] for _ in range(3)] == ["10.0.0.2"] * 3
    clock.advance(RENEWAL)
    assert {(await addresses.in_turn())[0] for _ in range(3)} == set(names.addresses)
