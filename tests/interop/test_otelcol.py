"""The OpenTelemetry Collector takes everything from our exporters, and passes everything on to our receiver."""

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_zernel.batch import SIGNALS, Batch, Signal
from otel_zernel.errors import Correctable
from otel_zernel.testing import until
from tests.free_ports import free_port
from tests.interop.installed import installed_peer
from tests.interop.rotel import listening
from tests.interop.test_otlp_senders import PYTHON, message_bits
from tests.interop.test_rotel import sending
from tests.otlp import meaning_of_profiles, profiles
from tests.receivers.otlp.serving import Recording, receiving

_VERSION = "0.161.0"
PROFILES = "--feature-gates=service.profilesSupport"


@asynccontextmanager
async def relaying(folder: Path, exporter: str, settings: Mapping[str, Any]) -> AsyncIterator[dict[str, str]]:
    """The addresses of a Collector by protocol. It passes all on by one exporter. Its log is in the folder."""
    program = installed_peer(f"otelcol-{_VERSION}", "the OpenTelemetry Collector", "soak") / "otelcol"
    addresses = {protocol: f"127.0.0.1:{free_port()}" for protocol in ("grpc", "http")}
    protocols = {protocol: {"endpoint": address} for protocol, address in addresses.items()}
    pipeline = {"receivers": ["otlp"], "exporters": [exporter]}
    config = {
        "receivers": {"otlp": {"protocols": protocols}},
        "exporters": {exporter: settings},
        "service": {
            "pipelines": dict.fromkeys(SIGNALS, pipeline),
            "telemetry": {"metrics": {"level": "none"}},
        },
    }
    file, log_file = folder / "otelcol.yaml", folder / "otelcol.log"
    file.write_text(yaml.safe_dump(config))
    with log_file.open("w") as log:
        process = await asyncio.create_subprocess_exec(program, f"--config={file}", PROFILES, stdout=log, stderr=log)
    try:
        async with asyncio.timeout(60):
            for address in addresses.values():
                await listening(address, process, log_file)
        yield addresses
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


pytestmark = pytest.mark.soak


NAN, GO_NAN = ((0x7FF8 << 48 | payload).to_bytes(8, "little") for payload in (0, 1))
"""Go reads the NaN of JSON as one with another payload."""


def everything(signal: Signal) -> Batch:
    """All that the Python SDK can make of a signal. It makes no profiles."""
    if signal == "profiles":
        return Batch.from_bytes(profiles=profiles(7, 9, resource={"service.name": "train"}).SerializeToString())
    make, encode, *_ = PYTHON[signal]
    name = "spans" if signal == "traces" else signal
    return Batch.from_bytes(**{name: encode(make()).SerializeToString()})


async def batch_of(downstream: Recording, number: int) -> Batch:
    """The batch that arrives as the one of this number, from 1 on."""
    await until(lambda: len(downstream.batches) == number)
    return downstream.batches[-1]


async def arrives(folder: Path, protocol: str, there: Mapping[str, Any], back: str) -> None:
    """Sends everything to the Collector with the options `there`. It comes back by the same protocol and `back`."""
    downstream = Recording()
    async with receiving(downstream) as receiver:
        settings = {"compression": back, "tls": {"insecure": True}}
        settings["endpoint"] = ("http://" if protocol == "http" else "") + str(receiver.addresses[protocol])
        async with (
            relaying(folder, f"otlp_{protocol}", settings) as addresses,
            sending(protocol, f"http://{addresses[protocol]}", there) as exporter,
        ):
            for number, signal in enumerate(SIGNALS, start=1):
                batch = everything(signal)
                await exporter.export(batch)
                newest = await batch_of(downstream, number)
                if signal == "profiles":  # it moves texts of resources into the dictionary
                    assert meaning_of_profiles(newest.profiles) == meaning_of_profiles(batch.profiles)
                    continue
                arrived = message_bits(newest.message(signal)).replace(GO_NAN, NAN)
                assert arrived == message_bits(batch.message(signal))


@pytest.mark.parametrize("there", ["none", "gzip"])
@pytest.mark.parametrize("back", ["none", "gzip"])
async def test_every_message_arrives_by_grpc(tmp_path: Path, there: str, back: str) -> None:
    await arrives(tmp_path, "grpc", {"compression": there}, back)


@pytest.mark.parametrize("encoding", ["proto", "json"])
@pytest.mark.parametrize("there", ["none", "gzip", "zstd", "deflate"])
async def test_every_message_arrives_by_http(tmp_path: Path, there: str, encoding: str) -> None:
    await arrives(tmp_path, "http", {"compression": there, "encoding": encoding}, "gzip")


@pytest.mark.parametrize("back", ["none", "zstd", "deflate", "zlib"])
async def test_every_compression_of_its_http_exporter_is_read(tmp_path: Path, back: str) -> None:
    await arrives(tmp_path, "http", {}, back)


async def test_a_compression_that_its_grpc_receiver_does_not_have_keeps_the_batch_and_is_named(tmp_path: Path) -> None:
    endpoint = {"endpoint": "127.0.0.1:9"}
    async with (
        relaying(tmp_path, "otlp_grpc", endpoint) as addresses,
        sending("grpc", f"http://{addresses['grpc']}", {"compression": "deflate"}) as exporter,
    ):
        with pytest.raises(Correctable, match=r"UNIMPLEMENTED.*set compression"):
            await exporter.export(everything("traces"))
