"""A real Slurm on this machine: munged, slurmctld, slurmd with one node, and slurmrestd, as processes of the tests."""

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.testing import until
from tests.free_ports import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "slurmrestd", "scontrol", "sinfo")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
VERSION = "v0.0.38"
"""The newest of Slurm 22.05, which Debian 12 has."""
_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld}
SlurmdPort={slurmd}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={folder}/jwt.key
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
KillWait=2
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,batch_sched_delay=0
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=2000 Gres=gpu:1
PartitionName=main Nodes=n1 Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Slurm:
    """A running cluster."""

    endpoint: str
    token_file: str
    directory: str
    """Where jobs may write."""
    environment: dict[str, str]

    def command(self, *arguments: str) -> str:
        """The output of a command of Slurm."""
        done = subprocess.run(arguments, capture_output=True, text=True, env=self.environment, check=True, timeout=60)
        return done.stdout


def why_not() -> str:
    """What is missing to run a cluster here; empty if nothing is."""
    missing = [one for one in PROGRAMS if not shutil.which(one, path=PATH)]
    if missing:
        return f"{', '.join(missing)}: not installed (Debian: slurmctld slurmd slurmrestd slurm-client munge)"
    return "" if os.getuid() == 0 else "only root can run slurmd"


@contextmanager
def running(folder: Path, more: str = "") -> Iterator[Slurm]:
    """A cluster in a folder, with more lines of slurm.conf. Skips the test if this machine cannot run it."""
    if missing := why_not():
        pytest.skip(missing)
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        yield asyncio.run(_started(folder, daemons, more))
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            daemon.wait(60)


async def _started(folder: Path, daemons: list[subprocess.Popen[bytes]], more: str) -> Slurm:
    ports = [free_port() for _ in range(3)]
    _write_files(folder, ports[0], ports[1], more)
    environment = {"PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf")}

    def start(*command: str, **more: str) -> subprocess.Popen[bytes]:
        log = (folder / f"{command[0]}.log").open("wb")
        daemons.append(subprocess.Popen(command, env={**environment, **more}, stdout=log, stderr=subprocess.STDOUT))
        log.close()
        return daemons[-1]

    files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
    start("munged", "--force", "--foreground", f"--socket={folder}/munge.socket", *files)
    await _until(folder, daemons, lambda: (folder / "munge.socket").exists())
    start("slurmctld", "-D", "-f", environment["SLURM_CONF"])
    start("slurmd", "-D", "-N", "n1", "-f", environment["SLURM_CONF"])
    await _until(folder, daemons, lambda: "idle" in _output(environment, "sinfo", "--noheader", "--format=%t"))
    token = folder / "token"
    token.write_text(_output(environment, "scontrol", "token", "lifespan=3600"), "utf-8")
    # slurmrestd refuses to run as root. Without a database, only one of its plugins loads.
    rest = ("-u", "nobody", "-g", "nogroup", "-s", VERSION, "-a", "rest_auth/jwt", f"127.0.0.1:{ports[2]}")
    start("slurmrestd", "-f", environment["SLURM_CONF"], *rest, SLURM_JWT="daemon")
    await _until(folder, daemons, lambda: _listens(ports[2]))
    return Slurm(f"http://127.0.0.1:{ports[2]}", str(token), str(folder / "shared"), environment)


def _write_files(folder: Path, ctld: int, slurmd: int, more: str) -> None:
    for name in ("state", "spool", "shared"):
        (folder / name).mkdir(mode=0o755)
    for name in ("munge.key", "jwt.key"):
        (folder / name).write_bytes(os.urandom(128))
        (folder / name).chmod(0o400)
    host = socket.gethostname().partition(".")[0]
    configuration = _CONFIGURATION.format(folder=folder, host=host, ctld=ctld, slurmd=slurmd)
    (folder / "slurm.conf").write_text(configuration + more, "utf-8")
    (folder / "gres.conf").write_text("NodeName=n1 Name=gpu File=/dev/null\n", "utf-8")


async def _until(folder: Path, daemons: list[subprocess.Popen[bytes]], condition: Any) -> None:
    def ended() -> list[str]:
        return [Path(daemon.args[0]).name for daemon in daemons if daemon.poll() is not None]  # type: ignore[index,arg-type]

    late = []
    try:
        await until(lambda: ended() or condition())
    except TimeoutError:
        late = [Path(daemons[-1].args[0]).name]  # type: ignore[index,arg-type]
    for name in ended() + late:
        last = (folder / f"{name}.log").read_text("utf-8", "replace").strip().rpartition("\n")[2]
        pytest.skip(f"{name} does not run here: {last}")


def _output(environment: dict[str, str], *command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=60).stdout


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
