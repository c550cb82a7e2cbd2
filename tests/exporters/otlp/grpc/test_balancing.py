"""Requests are spread over all addresses of a host, and over those that come later."""

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import pytest

from otel_zernel.component import Exporter
from otel_zernel.errors import Retryable
from otel_zernel.testing import FakeClock, make_context
from otel_zernel_libraries.clients.addresses import RENEWAL, Addresses
from tests.exporters.otlp.certificates import Authority
from tests.exporters.otlp.exporting import both, exporter_of
from tests.exporters.otlp.peers import GrpcSink, metrics_batch, serve_raw
from tests.exporters.otlp.test_tls import SecureServer

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
        """The `Host` of the requests over HTTP."""
        self.sinks: dict[str, GrpcSink] = {}

    def taken(self) -> dict[str, int]:
        """The requests of each gateway since the last call."""
        taken, self.received = self.received, Counter()
        for address, sink in self.sinks.items():
            taken[address] += len(sink.requests)
            sink.requests.clear()
        return {address: count for address, count in taken.items() if count}

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
        port, self.sinks = 0, {address: GrpcSink() for address in gateways}
        async with AsyncExitStack() as stack:
            for address, sink in self.sinks.items():
                port = await stack.enter_async_context(sink.serve(host=address, port=port))
            yield port


async def send(exporter: Exporter, times: int) -> None:
    for _ in range(times):
        await exporter.export(metrics_batch())


@asynccontextmanager
async def served(transport: str, gateways: tuple[str, ...] = GATEWAYS) -> AsyncIterator[tuple[int, Gateways]]:
    """Gateways and their port."""
    servers = Gateways()
    async with servers.serve_http() if transport == "http" else servers.serve_grpc(gateways) as port:
        yield port, servers


@pytest.mark.parametrize(
    ("transport", "form"),
    [
        ("http", "http://gateway:{}"),
        ("grpc", "http://gateway:{}"),
        ("grpc", "dns:///gateway:{}"),
        ("grpc", "dns:gateway:{}"),
    ],
)
async def test_requests_go_to_every_address_in_turn(transport: str, form: str) -> None:
    names, tls = Names(*GATEWAYS), {"insecure": True} if transport == "grpc" else {}
    async with served(transport) as (port, gateways):
        async with exporter_of(transport, form.format(port), names=names, tls=tls) as exporter:
            await send(exporter, 6)
        assert gateways.taken() == dict.fromkeys(GATEWAYS, 2)
    assert transport == "grpc" or set(gateways.names) == {f"gateway:{port}"}
    assert names.asked == 1


@both
async def test_new_gateways_are_found_and_old_ones_left(transport: str) -> None:
    clock, names = FakeClock(), Names("127.0.0.1")
    own = make_context("exporters", clock=clock)
    async with (
        served(transport) as (port, gateways),
        exporter_of(transport, f"http://gateway:{port}", own, names) as exporter,
    ):
        await send(exporter, 3)
        assert gateways.taken() == {"127.0.0.1": 3}
        names.addresses = list(GATEWAYS)
        clock.advance(RENEWAL)
        await send(exporter, 6)
        assert gateways.taken() == dict.fromkeys(GATEWAYS, 2)
        names.addresses = ["127.0.0.3"]
        clock.advance(RENEWAL)
        await send(exporter, 3)
        assert gateways.taken() == {"127.0.0.3": 3}


@both
async def test_an_address_without_a_server_is_passed_over(transport: str) -> None:
    # Nobody listens on IPv6.
    names = Names("127.0.0.1", "::1") if transport == "http" else Names(*GATEWAYS)
    async with served(transport, GATEWAYS[:2]) as (port, gateways):
        async with exporter_of(transport, f"http://gateway:{port}", names=names) as exporter:
            await send(exporter, 6)
        assert sum(gateways.taken().values()) == 6


@both
async def test_certificates_are_checked_by_the_name_and_not_by_the_address(
    transport: str, authority: Authority
) -> None:
    server, tls = SecureServer(transport, authority.issue("gateway.example")), {"ca_file": authority.ca_file}
    async with server.serve() as endpoint:
        port = endpoint.rpartition(":")[2]
        for name in ("gateway.example", "other.example"):
            async with exporter_of(transport, f"https://{name}:{port}", names=Names("127.0.0.1"), tls=tls) as exporter:
                if name == "gateway.example":
                    await exporter.export(metrics_batch())
                else:
                    reason = r"certificate is not valid for 'other\.example'" if transport == "http" else "UNAVAILABLE"
                    with pytest.raises(Retryable, match=reason):
                        await exporter.export(metrics_batch())
    assert server.clients == [""]


async def test_http_names_a_host_that_cannot_be_resolved() -> None:
    names = Names()
    names.broken = True
    async with exporter_of("http", "http://gateway:4318/x?token=geheim", names=names) as exporter:
        with pytest.raises(Retryable, match="cannot resolve the host: Name or service not known") as caught:
            await exporter.export(metrics_batch())
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(("balancer", "counts"), [("round_robin", [2, 2, 2]), ("pick_first", [6])])
async def test_grpc_spreads_over_listed_addresses_unless_it_is_to_pick_the_first(
    balancer: str, counts: list[int]
) -> None:
    options: dict[str, Any] = {"tls": {"insecure": True}, "balancer_name": balancer}
    async with served("grpc") as (port, gateways):
        listed = ",".join(f"{address}:{port}" for address in GATEWAYS)
        async with exporter_of("grpc", f"ipv4:{listed}", **options) as exporter:
            await send(exporter, 6)
        assert list(gateways.taken().values()) == counts


class NameServer(asyncio.DatagramProtocol):
    """A DNS server that knows one name."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, query: bytes, sender: tuple[str, int]) -> None:
        end = query.index(b"\0", 12) + 5
        kind = struct.unpack(">H", query[end - 4 : end - 2])[0]
        known = self._addresses if kind == 1 else []  # 1: IPv4 address
        header = query[:2] + struct.pack(">HHHHH", 0x8180, 1, len(known), 0, 0)
        records = (
            b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 1, 4) + socket.inet_aton(address) for address in known
        )  # RFC 1035, 4.1.3
        self._transport.sendto(header + query[12:end] + b"".join(records), sender)


async def test_grpc_spreads_over_the_addresses_of_a_name_server() -> None:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: NameServer(list(GATEWAYS)), ("127.0.0.1", 0))
    dns_port = transport.get_extra_info("sockname")[1]
    async with served("grpc") as (port, gateways):
        endpoint = f"dns://127.0.0.1:{dns_port}/gateway.example:{port}"
        async with exporter_of("grpc", endpoint, tls={"insecure": True}) as exporter:
            seen: set[str] = set()
            for _ in range(1000):
                await send(exporter, 1)
                seen |= gateways.taken().keys()
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
