"""The systemd unit: valid, with the least rights with which doctor finds nothing missing, and with time to stop."""

import json
import re
import shutil
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest

from otel_zernel.config.schema import ServiceSection
from otel_zernel.engine.process import GRACE
from otel_zernel.types import parse_duration
from otel_zernel_receivers.ebpf.doctor import _OPTIONAL, _REQUIRED
from tests.deploy.unprivileged import collector_with
from tests.examples.test_live_job import training
from tests.interop.collector import page_with
from tests.interop.prometheus import until_ready
from tests.receivers.ebpf.watching import TEST_RUN, require_ebpf

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "systemd" / "otel-zernel.service"
README = (UNIT.parent / "README.md").read_text("utf-8")
CONFIG = """yaml:
receivers: {ebpf: {}}
exporters: {debug: {}}
service: {pipelines: {m: {receivers: [ebpf], exporters: [debug]}}}
"""


def directives(name: str) -> list[str]:
    """The values of a directive."""
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text("utf-8"), re.MULTILINE)


def capabilities() -> list[str]:
    (ambient,), (bounding,) = directives("AmbientCapabilities"), directives("CapabilityBoundingSet")
    assert ambient == bounding
    return ambient.split()


def runnable(folder: Path) -> Path:
    """The unit with a program that exists on this machine."""
    unit = folder / UNIT.name
    unit.write_text(UNIT.read_text("utf-8").replace("/opt/otel-zernel/bin/otel-zernel", "/bin/true"))
    return unit


needs_systemd = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="needs systemd-analyze (Debian: systemd)"
)


@needs_systemd
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", runnable(tmp_path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
def test_systemd_calls_the_unit_ok_as_its_readme_says(tmp_path: Path) -> None:
    command = ["systemd-analyze", "security", "--no-pager", "--offline=true", str(runnable(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    level = re.search(r"Overall exposure level for otel-zernel.service: ([\d.]+)", done.stdout)
    assert level
    assert float(level[1]) < 3


@needs_systemd
def test_a_wrong_directive_is_noticed(tmp_path: Path) -> None:
    unit = runnable(tmp_path)
    unit.write_text(unit.read_text().replace("Type=exec", "Type=exekutive"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert "exekutive" in done.stderr


def test_it_has_the_capabilities_that_doctor_asks_for() -> None:
    assert set(capabilities()) == {capability.name for capability in _REQUIRED | _OPTIONAL}


def as_the_unit(*arguments: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """The collector with the capabilities of the unit, and no others, as a user without root."""
    return collector_with(capabilities(), *arguments)


def test_with_its_capabilities_and_no_root_doctor_finds_them_all() -> None:
    with as_the_unit("doctor", "--config", CONFIG) as doctor:
        output = doctor.communicate()[0]
    found = dict(re.findall(r"^\s*(ok|!!)?\s+(CAP_\w+)", output, re.MULTILINE)[i][::-1] for i in range(5))
    assert found == dict.fromkeys(capabilities(), "ok"), output


async def test_with_its_capabilities_and_no_root_it_sees_the_phases_of_another_users_job(
    unused_tcp_port: int, tmp_path: Path
) -> None:
    require_ebpf()
    config = {
        "receivers": {"ebpf": {"processes": {"environment": {TEST_RUN: tmp_path.name}}, "rescan_interval": "1s"}},
        "processors": {"phases": {"interval": "1s"}},
        "exporters": {"prometheus": {"endpoint": f"127.0.0.1:{unused_tcp_port}"}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"training": {"receivers": ["ebpf"], "processors": ["phases"], "exporters": ["prometheus"]}},
        },
    }
    with as_the_unit("run", "--config", f"yaml:{json.dumps(config)}"), training(TEST_RUN, tmp_path.name) as pid:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{unused_tcp_port}") as client:
            await until_ready(client, "/health")
            page = await page_with(client, "zernel_phase_fraction_ratio{", 'zernel_phase="data_loading"')
    assert f'process_pid="{pid}"' in page


def test_it_waits_for_the_queues_to_drain() -> None:
    (timeout,) = directives("TimeoutStopSec")
    assert parse_duration(f"{timeout}s") > ServiceSection().shutdown_timeout + GRACE


def test_its_readme_installs_it_and_names_only_paths_of_the_repository() -> None:
    for path in re.findall(r"(?:examples|deploy)/\S+", README):
        assert (ROOT / path).exists(), path
    (start,) = directives("ExecStart")
    assert "/opt/otel-zernel/bin/otel-zernel run --config /etc/otel-zernel/config.yaml" in start
    assert "/opt/otel-zernel" in README
    assert "/etc/otel-zernel/config.yaml" in README
