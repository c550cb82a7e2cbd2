"""Runs the OpenTelemetry Collector between our exporters and our receiver. `install-otelcol.sh` builds it."""

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from otel_zernel.batch import SIGNALS
from tests.free_ports import free_port
from tests.interop.conftest import installed_peer
from tests.interop.rotel import listening

_VERSION = "0.161.0"


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
        process = await asyncio.create_subprocess_exec(program, f"--config={file}", stdout=log, stderr=log)
    try:
        async with asyncio.timeout(60):
            for address in addresses.values():
                await listening(address, process, log_file)
        yield addresses
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()
