"""`otel-zernel api`: a store is served by its URL or by a configuration, and wrong options have one sentence."""

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from docs.catalogue import ROOT
from otel_zernel.registry import Registry
from otel_zernel_commands.api.configuration import bases, store_settings
from tests.extensions.query.serving import gauge, serving
from tests.libraries.store.given import sqlite_config

EXAMPLE = ROOT / "examples" / "rest.yaml"
PATIENCE = 120
"""Seconds for the start of a process on a busy machine."""


@contextmanager
def running(*options: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-m", "otel_zernel", "api", *options]
    environ = {**environ, "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environ) as process:
        limit = threading.Timer(PATIENCE, process.kill)
        limit.start()
        try:
            yield process
        finally:
            limit.cancel()
            process.kill()


def printed_until(process: subprocess.Popen[str], end: str) -> list[str]:
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line.rstrip("\n"))
        if lines[-1] == end:
            return lines
    raise AssertionError(lines)


def answer_of(url: str) -> Any:
    with urlopen(url, timeout=PATIENCE) as answer:
        return json.load(answer)


async def stored(folder: Path) -> str:
    """The URL of a store with three points."""
    settings = sqlite_config(folder, synchronous="normal")
    async with serving(settings) as served:
        await served.write(gauge("hw.power", [1.0, 2.0, 3.0]), host_name="n1")
    return settings.url


async def test_a_store_is_served_until_ctrl_c(tmp_path: Path, unused_tcp_port: int) -> None:
    url, base = await stored(tmp_path), f"http://localhost:{unused_tcp_port}"
    with running("--store", url, "--endpoint", f"localhost:{unused_tcp_port}") as process:
        lines = printed_until(process, "Ctrl-C ends it.")
        assert lines == [f"API: {base}/api/v1", f"Page: {base}/swagger/index.html", "Ctrl-C ends it."]
        page = answer_of(f"{base}/api/v1/telemetry?fields=metric,value,host_id")
        assert page["data"] == [{"metric": "hw.power", "value": value, "host_id": "n1"} for value in (1.0, 2.0, 3.0)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


async def test_the_example_serves_a_store_without_pipelines(tmp_path: Path, unused_tcp_port: int) -> None:
    text = EXAMPLE.read_text().replace("localhost:8080", f"localhost:{unused_tcp_port}")
    (tmp_path / "rest.yaml").write_text(text)
    url = await stored(tmp_path)
    with running("--config", str(tmp_path / "rest.yaml"), STORE_URL=url) as process:
        printed_until(process, f"Page: http://localhost:{unused_tcp_port}/swagger/index.html")
        assert answer_of(f"http://localhost:{unused_tcp_port}/api/v1/stats/summary")["points"] == 3
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=PATIENCE)
    assert "Stopped." in log
    assert "Every receiver has finished" not in log


async def test_a_store_that_does_not_exist_yet_is_waited_for(tmp_path: Path, unused_tcp_port: int) -> None:
    url = sqlite_config(tmp_path).url
    with running("--store", url, "--endpoint", f"localhost:{unused_tcp_port}") as process:
        lines = printed_until(process, "Ctrl-C ends it.")
        assert any("does not exist yet; start a collector with the sql exporter first" in line for line in lines)
        await stored(tmp_path)
        assert answer_of(f"http://localhost:{unused_tcp_port}/health") == {"status": "ok"}


def test_a_port_that_is_taken_has_one_sentence() -> None:
    with socket.create_server(("localhost", 0)) as other:
        endpoint = f"localhost:{other.getsockname()[1]}"
        with running("--store", "sqlite:///tmp/x.db", "--endpoint", endpoint) as process:
            _, printed = process.communicate(timeout=PATIENCE)
    assert f"another program has {endpoint}: choose another port with --endpoint" in printed
    assert "API:" not in printed


def test_the_password_of_libpq_is_used_and_not_expanded() -> None:
    pytest.importorskip("asyncpg")
    settings = store_settings(
        "postgresql://me@db/x", "0.0.0.0:8080", {"PGPASSWORD": "a${env:HOME}"}, Registry.installed()
    )
    password = getattr(settings.extensions["query"].config, "password")  # noqa: B009
    assert password.get_secret_value() == "a${env:HOME}"
    assert bases(settings) == ["http://localhost:8080"]
