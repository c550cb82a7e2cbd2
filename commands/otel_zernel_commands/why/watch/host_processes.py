"""Processes of this machine, as /proc shows them."""

import os
from collections.abc import Iterable
from pathlib import Path

import psutil

from otel_zernel_libraries.training.chosen_jobs import ancestors_of
from otel_zernel_libraries.training.frameworks import Framework, frameworks_of

_LONGEST_COMMAND = 64
"""Words of a command line that are kept."""
_LONGEST_WORD = 512
"""Characters of each."""


def command_of(pid: int) -> tuple[str, ...]:
    """The first words of its command line; empty if it has ended or cannot be read."""
    try:
        return tuple(word[:_LONGEST_WORD] for word in psutil.Process(pid).cmdline()[:_LONGEST_COMMAND])
    except (psutil.Error, OSError):
        return ()


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except (psutil.Error, OSError):
        return False


def count_processes() -> int:
    """The processes of this machine, without the kernel's own threads."""
    kthreadd = 2
    return sum(1 for process in psutil.process_iter(["ppid"]) if kthreadd not in (process.pid, process.info["ppid"]))


def cpus_allowed(pid: int) -> int:
    """The CPUs on which the process may run; those of this machine if it has ended."""
    try:
        return len(os.sched_getaffinity(pid))
    except OSError:
        return os.cpu_count() or 1


def uses_rocm(pid: int) -> bool:
    """Whether the process has loaded the library of AMD's GPUs."""
    return any(Path(path).name.startswith("libamdhip64.so") for path in _mapped(pid, Path("/proc")))


def runs_mps() -> bool:
    """Whether processes share GPUs by NVIDIA's Multi-Process Service."""
    return any(process.info["name"] == "nvidia-cuda-mps-server"[:15] for process in psutil.process_iter(["name"]))


def family_of(pid: int) -> list[int]:
    """The process and its descendants; empty if it has ended."""
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except (psutil.Error, OSError):
        return []


def programs() -> list[int]:
    """The processes that run Python or have loaded a known framework, without this command and its ancestors."""
    own = {os.getpid(), *ancestors_of(os.getpid())}
    return [pid for pid in psutil.pids() if pid not in own and (_runs_python(pid) or frameworks_in(pid))]


def frameworks_in(pid: int, proc: Path = Path("/proc")) -> frozenset[Framework]:
    """The frameworks that the process has loaded; empty if it has ended or cannot be read."""
    return frameworks_of(_mapped(pid, proc))


def shows_steps(pids: Iterable[int], proc: Path = Path("/proc")) -> bool:
    """Whether one of the processes has loaded PyTorch, CUDA or NCCL: only these show steps or phases."""
    return any(Path(path).name.startswith(_SHOWING) for pid in pids for path in _mapped(pid, proc))


_SHOWING = ("libtorch_cpu.so", "libcudart.so", "libcuda.so", "libnccl.so")


def _runs_python(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name.startswith("python")
    except OSError:
        return False


def _mapped(pid: int, proc: Path) -> set[str]:
    """The files that the process has mapped."""
    try:
        lines = (proc / str(pid) / "maps").read_text(errors="replace").splitlines()
    except OSError:
        return set()
    return {line.split(None, 5)[5] for line in lines if "/" in line}
