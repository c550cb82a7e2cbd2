"""The prolog and the epilog of Slurm: a real slurmd runs them around a real PyTorch job, which a gateway then knows."""

import asyncio
import shutil
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from docs.catalogue import ROOT
from otel_zernel.config.schema import read_settings
from otel_zernel.registry import Registry
from otel_zernel.testing import until
from tests.collectors import collector
from tests.extensions.tasks.engines.slurm.cluster import Slurm, running
from tests.free_ports import free_port
from tests.receivers.ebpf.jobs.pytorch.torches import OWN, python_of
from tests.receivers.ebpf.watching import require_ebpf

FOLDER = ROOT / "deploy" / "slurm"
JOB_ID = '"key":"zernel.job.id","value":{"stringValue":"1"}'
PATIENCE = 60
"""Seconds."""
SCRIPTS = ("otel-zernel-prolog.sh", "otel-zernel-epilog.sh")


def test_the_configuration_is_valid() -> None:
    settings = read_settings([str(FOLDER / "job.yaml")], [], {"SLURM_JOB_ID": "12"}, Registry.installed())
    assert not settings.warnings
    assert settings.receivers["ebpf"].config.model_dump()["processes"]["environment"] == {"SLURM_JOB_ID": "12"}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_can_be_executed_and_is_in_the_readme(script: str) -> None:
    assert (FOLDER / script).stat().st_mode & stat.S_IXOTH
    assert f"={'/etc/slurm/'}{script}" in (FOLDER / "README.md").read_text()


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    """A cluster with the prolog and the epilog in the folder of the test."""
    require_ebpf()
    scripts = f"PrologFlags=Alloc\nProlog={tmp_path}/{SCRIPTS[0]}\nEpilog={tmp_path}/{SCRIPTS[1]}\n"
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        Path(folder).chmod(0o755)  # slurmrestd, which is not root, has to reach its configuration
        with running(Path(folder), scripts) as cluster:
            yield cluster


async def test_a_job_has_a_collector_from_its_prolog_to_its_epilog(slurm: Slurm, tmp_path: Path) -> None:
    port, received = free_port(), tmp_path / "received.jsonl"
    install(tmp_path, port)
    train = f"--wrap={python_of(OWN)} {ROOT}/examples/train.py 1000"
    async with gateway(tmp_path, port, received):
        await asyncio.to_thread(slurm.command, "sbatch", "--output=/dev/null", "--chdir=/tmp", train)
        pid_file = tmp_path / "state" / "1.pid"
        try:
            await until(lambda: pid_file.exists() and pid_file.read_text(), PATIENCE)
            collector = Path("/proc") / pid_file.read_text().strip()
            assert collector.exists()
            await until(lambda: JOB_ID in received.read_text(), PATIENCE)
        finally:
            await asyncio.to_thread(slurm.command, "scancel", "1")
        await until(lambda: not pid_file.exists() and not collector.exists(), PATIENCE)
        await until(lambda: "idle" in slurm.command("sinfo", "--format=%t", "--noheader"), PATIENCE)
    assert "Stopped" in (tmp_path / "logs" / "1.log").read_text()


def install(folder: Path, port: int) -> None:
    """The scripts, with settings in this folder."""
    program = folder / "otel-zernel"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m otel_zernel "$@"\n')
    program.chmod(0o755)
    settings = {
        "PROGRAM": program,
        "CONFIG": FOLDER / "job.yaml",
        "STATE": folder / "state",
        "LOGS": folder / "logs",
        "export OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
    }
    (folder / "settings").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    for script in SCRIPTS:
        copied = Path(shutil.copy(FOLDER / script, folder))
        copied.write_text(copied.read_text().replace("/etc/default/otel-zernel", str(folder / "settings")))


@asynccontextmanager
async def gateway(folder: Path, port: int, received: Path) -> AsyncIterator[None]:
    """A collector that writes what it receives into a file."""
    config = {
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {"file": {"path": str(received)}},
        "service": {
            "pipelines": {"all": {"receivers": ["otlp"], "exporters": ["file"]}},
        },
    }
    async with collector(folder / "gateway", config, port):
        await until(received.exists, PATIENCE)
        yield
