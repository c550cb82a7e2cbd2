"""What this machine lacks, from the findings of `otel-zernel doctor`."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from otel_zernel.component import Finding
from otel_zernel.errors import CannotStart
from otel_zernel.registry import Registry

_RIGHTS = ("bpf", "perfmon", "sys_ptrace", "dac_read_search", "checkpoint_restore")
"""The capabilities, in the words of setpriv(1)."""


def check_prerequisites(registry: Registry, user: int | None = None) -> bool:
    """Examines the machine for about a second. The result is whether a running process uses CUDA, NCCL, PyTorch or
    another known framework. `user` is the effective user id, by default that of this process.

    Raises `CannotStart` with one sentence if processes cannot be watched.
    """
    ebpf = list(registry.load("receivers", "ebpf").examine())
    if obstacle := obstacle_of(ebpf, os.geteuid() if user is None else user):
        raise CannotStart(obstacle)
    return not any(finding.topic == "processes" for finding in ebpf)


def gpu_notes(registry: Registry) -> tuple[str, ...]:
    """What cannot be seen of GPUs and why, a sentence each: they concern jobs that use one."""
    lacking = [finding.text for finding in registry.load("receivers", "nvml").examine() if finding.ok is False]
    return tuple(sentence(f"GPU utilisation and throttling: {text}") for text in lacking)


def sentence(note: str) -> str:
    """The note with a full stop."""
    return note if note.endswith(".") else f"{note}."


def obstacle_of(ebpf: Sequence[Finding], user: int) -> str:
    """The sentence that says why processes cannot be watched, by the findings of `ebpf`; empty if they can."""
    attaching = next(
        (finding.text for finding in ebpf if finding.ok is False and finding.topic in ("attaching", "kernel")), None
    )
    missing = next((f"{finding.topic}: {finding.text}" for finding in ebpf if finding.ok is False), "")
    if not attaching and not any(finding.ok is False and finding.topic in ("libbpf", "BTF") for finding in ebpf):
        return ""
    if user == 0:
        return f"this machine's processes cannot be watched: {attaching or missing}"
    program = Path(sys.argv[0]).absolute()
    rights = ",".join(f"+{name}" for name in _RIGHTS)
    return (
        f"watching other processes needs root: run `sudo {program} why`, or let an administrator start it with the "
        f"fewest rights: `sudo setpriv --reuid={user} --clear-groups --inh-caps={rights} --ambient-caps={rights} "
        f"{program} why`"
    )
