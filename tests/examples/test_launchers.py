"""The jobs in examples/launchers, started by torchrun and by Ray: training.yaml names them and their ranks."""

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from docs.catalogue import ROOT
from tests.interop.collector import collecting, page_with
from tests.interop.installed import miss
from tests.receivers.ebpf.watching import TEST_RUN, require_ebpf

LAUNCHERS = ROOT / "examples" / "launchers"
EPOCHS = "1000"
PATIENCE = 200.0
"""Seconds. On a busy machine Ray needs a minute until its workers train."""
COMMANDS = {
    "my-job": (
        *("-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-id", "my-job"),
        *("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", str(LAUNCHERS / "ddp.py"), EPOCHS),
    ),
    "my-ray-job": (str(LAUNCHERS / "ray_ddp.py"), EPOCHS),
}


@pytest.mark.parametrize("job", COMMANDS)
async def test_a_job_of_two_ranks_has_its_name_and_its_ranks(job: str, tmp_path: Path, unused_tcp_port: int) -> None:
    require_ebpf()
    for package in ("torch", "ray") if "ray" in job else ("torch",):
        if not importlib.util.find_spec(package):
            miss(f"the package {package} is missing: `REQUIRE_PEERS=1 make peers` installs it")
    config = {
        "receivers": {"ebpf": {"processes": {"environment": {TEST_RUN: tmp_path.name}}, "rescan_interval": "1s"}},
        "processors": {"phases": {"interval": "1s", "window": "5s"}},
        "exporters": {"prometheus": {"endpoint": f"127.0.0.1:{unused_tcp_port}"}},
    }
    with launched(COMMANDS[job], tmp_path.name):
        async with collecting(tmp_path, unused_tcp_port, config, example=ROOT / "examples" / "training.yaml") as client:
            labels = f'{{job="{job}",zernel_job_id="{job}",'
            lateness = [f'zernel_job_rank_lateness_seconds{labels}zernel_rank="{rank}"}}' for rank in range(2)]
            verdict = f'zernel_job_verdict{labels}zernel_job_verdict="none"}}'
            await page_with(client, verdict, *lateness, within=PATIENCE)


@contextmanager
def launched(command: tuple[str, ...], run: str) -> Iterator[None]:
    """A launcher with its processes, which end with the context. Ray's daemons are among them."""
    quiet = subprocess.DEVNULL
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        environ = {**os.environ, TEST_RUN: run, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": folder}
        launcher = subprocess.Popen([sys.executable, *command], env=environ, stdout=quiet, stderr=quiet)
        try:
            yield
        finally:
            left = psutil.Process(launcher.pid).children(recursive=True)
            launcher.terminate()
            launcher.wait(60)
            for process in psutil.wait_procs(left, 10)[1]:
                process.kill()
