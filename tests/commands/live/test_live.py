"""`otel-zernel live`: a recorded run is there whole at any speed, and wrong options have one sentence."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from glob import glob
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from docs.catalogue import ROOT
from otel_zernel.registry import Registry
from otel_zernel_commands.live.configuration import live_settings, replay_settings
from otel_zernel_libraries.job_choice import JobChoice
from tests.commands.why.chromium import browsing, require_chromium

RECORDING = ROOT / "examples" / "training_spans.jsonl"
STEPS = 150


@contextmanager
def running(*options: str, port: int) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-m", "otel_zernel", "live", "--port", str(port), *options]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def state_when_all_steps_are_there(port: int) -> dict[str, Any]:
    until = time.monotonic() + 120
    while True:
        try:
            with urlopen(f"http://localhost:{port}/api/live", timeout=10) as answer:
                state: dict[str, Any] = json.load(answer)
            rows = state["timeline"]  # traces may come after the metrics of their report
            if any(is_whole(rank) and len(rows.get(id_, ())) >= STEPS for id_, rank in state["ranks"].items()):
                return state
        except OSError:
            state = {}
        assert time.monotonic() < until, state.get("ranks")
        time.sleep(0.1)


def is_whole(rank: dict[str, Any]) -> bool:
    """Whether all steps are there, and the verdict on them. The verdict may come with a later report."""
    name: str = rank.get("verdict", {}).get("name", "")
    return rank.get("steps") == STEPS and name == "input_bound"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_fast_replay_has_all_steps_and_ends_by_ctrl_c_or_with_its_terminal(
    number: signal.Signals, unused_tcp_port: int, tmp_path: Path
) -> None:
    saved = tmp_path / "$ page.html"
    with running("--replay", str(RECORDING), "--speed", "100", "--html", str(saved), port=unused_tcp_port) as process:
        state = state_when_all_steps_are_there(unused_tcp_port)
        process.send_signal(number)
        _, printed = process.communicate(timeout=60)
    assert not state["collector"]["dropped"]
    assert process.returncode == 0
    block = re.search(r'<script type="application/json" id="state">(.*?)</script>', saved.read_text("utf-8"))
    assert block
    assert json.loads(block[1])["timeline"].keys() == state["timeline"].keys()
    first, second = printed.splitlines()[:2]
    assert first == f"Live page: http://localhost:{unused_tcp_port}/"
    assert f"ssh -N -L {unused_tcp_port}:localhost:{unused_tcp_port} " in second


def test_a_recorded_run_opens_in_the_page(tmp_path: Path, unused_tcp_port: int) -> None:
    require_chromium()
    with running("--replay", str(RECORDING), "--speed", "20", port=unused_tcp_port), browsing(tmp_path) as tab:
        state_when_all_steps_are_there(unused_tcp_port)
        tab.open(f"http://localhost:{unused_tcp_port}/", 1280, 900, "light")
        script = "document.querySelector('#ranks tbody td:nth-child(5)')?.textContent"
        until = time.monotonic() + 60
        while tab.evaluate(script) != str(STEPS):
            assert time.monotonic() < until
            time.sleep(0.05)
        assert tab.complaints == []
        assert {url.split("/", 3)[2] for url in tab.requests} == {f"localhost:{unused_tcp_port}"}


def test_an_address_that_is_taken_is_not_printed() -> None:
    with socket.create_server(("localhost", 0)) as other:
        port = other.getsockname()[1]
        with running("--replay", str(RECORDING), port=port) as process:
            _, printed = process.communicate(timeout=60)
    assert process.returncode
    assert f"another program uses port {port}: choose another one with --port N" in printed
    assert "Live page" not in printed


def test_a_path_is_a_name_and_no_pattern(tmp_path: Path) -> None:
    path = tmp_path / "a [1] ${HOME} *.jsonl"
    path.write_bytes(RECORDING.read_bytes())
    settings = replay_settings(path, 9095, Registry.installed(), speed=1, loop=False)
    (pattern,) = settings.receivers["otlp_json_file"].config.model_dump()["include"]
    assert glob(pattern) == [str(path)]  # noqa: PTH207  # as the receiver does


LOGS = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"epoch 3"}}]}]}]}\n'


@pytest.mark.parametrize("beginning", [LOGS * 200, LOGS * 10_000, LOGS * 200 + b"damage\n" * 200], ids=len)
def test_a_recording_that_begins_with_many_logs_is_one(beginning: bytes, tmp_path: Path) -> None:
    """Also if they are too many to look for what follows, or if a part is damaged."""
    path = tmp_path / "run.jsonl"
    path.write_bytes(beginning + RECORDING.read_bytes())
    receiver: Any = Registry.installed().load("receivers", "otlp_json_file")
    assert receiver.damage_of(str(path)) == ""


def rank_of(state: dict[str, Any]) -> dict[str, Any]:
    (rank,) = (rank for rank in state["ranks"].values() if rank.get("steps") == STEPS)
    return dict(rank)


def test_at_any_speed_the_rates_and_durations_are_those_of_the_job(unused_tcp_port_factory: Callable[[], int]) -> None:
    ports = {speed: unused_tcp_port_factory() for speed in ("20", "100")}
    with ExitStack() as stack:
        for speed, port in ports.items():
            stack.enter_context(running("--replay", str(RECORDING), "--speed", speed, port=port))
        shown = [rank_of(state_when_all_steps_are_there(port)) for port in ports.values()]
    words = [sys.executable, "-m", "otel_zernel", "watch", "--json", str(RECORDING)]
    printed = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout
    expected = rank_of(json.loads(printed))
    for rank in shown:
        assert rank["step"]["p50"] == pytest.approx(expected["step"]["p50"], rel=0.02)
        assert rank["step_rate"] == pytest.approx(expected["step_rate"], rel=0.05)


def test_this_machine_is_watched_by_ebpf_and_nvml() -> None:
    assert {*live_settings(9095, Registry.installed(), JobChoice()).receivers} == {"ebpf", "nvml"}
