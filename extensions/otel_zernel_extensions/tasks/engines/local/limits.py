"""The limits of a local task, as the keeper applies them. Every function blocks."""

import os
import zlib
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Any, Final

from otel_zernel.component import Finding
from otel_zernel_extensions.tasks.engines.engine import TaskSpec

_PERIOD: Final = 100_000
"""Microseconds: the default of the kernel for cpu.max."""
_CONTROLLERS: Final = frozenset({"cpu", "memory"})


def applied_limits(task: TaskSpec, cgroup: Path | None) -> dict[str, Any]:
    """The limits for `task.json`: by a control group if there is one, else by rlimits and CPU affinity."""
    cpu, memory = task.limits.cpu, task.limits.memory
    if cgroup is not None:
        return {"cgroup": str(_task_group(task, cgroup)), "rlimits": {}, "cpus": []}
    rlimits = {} if memory is None else {"RLIMIT_DATA": (memory, memory)}
    return {"cgroup": None, "rlimits": rlimits, "cpus": [] if cpu is None else _cpus(task.id, ceil(cpu))}


def _cpus(id_: str, count: int) -> list[int]:
    """So many CPUs of this process. Different tasks get different ones, by chance."""
    known = sorted(os.sched_getaffinity(0))
    first = zlib.crc32(id_.encode()) % len(known)
    return [] if count >= len(known) else sorted((known + known)[first : first + count])


def _task_group(task: TaskSpec, cgroup: Path) -> Path:
    """Makes the control group of a task. Raises `OSError`."""
    group = group_of(cgroup, task.id)
    group.mkdir(exist_ok=True)
    if task.limits.memory is not None:
        (group / "memory.max").write_text(str(task.limits.memory))
        with suppress(OSError):  # not there without swap accounting
            (group / "memory.swap.max").write_text("0")
        with suppress(OSError):
            (group / "memory.oom.group").write_text("1")
    if task.limits.cpu is not None:
        (group / "cpu.max").write_text(f"{max(1000, round(task.limits.cpu * _PERIOD))} {_PERIOD}")
    return group


def group_of(cgroup: Path, id_: str) -> Path:
    """The control group of a task."""
    return cgroup / f"task-{id_}"


def missing_of(cgroup: Path) -> str | None:
    """Why a control group cannot be used, and what to do. None if it can."""
    try:
        enabled = {*(cgroup / "cgroup.subtree_control").read_text("ascii").split()}
    except OSError as error:
        return f"{cgroup} is no control group of version 2: {error.strerror}; name one that the collector may write"
    if missing := sorted(_CONTROLLERS - enabled):
        names = " ".join(f"+{controller}" for controller in missing)
        return f"{cgroup} does not control {' and '.join(missing)}; write {names} to its cgroup.subtree_control"
    if not os.access(cgroup, os.W_OK | os.X_OK):
        return f"{cgroup} is not writable; delegate it to the user of the collector"
    return None


def limits_found(cgroup: Path | None) -> Finding:
    """How tasks are limited here, for `otel-zernel doctor`."""
    if cgroup is None:
        return Finding("limits", "CPUs by affinity, memory of each process by RLIMIT_DATA; set local::cgroup for more")
    missing = missing_of(cgroup)
    return Finding("limits", missing or f"CPU and memory of each task by {cgroup}", ok=missing is None)
