"""The state of a task from a job of Slurm, in the layouts of the versions of slurmrestd. No I/O."""

import os
from collections.abc import Mapping
from typing import Any, Final

from otel_zernel_extensions.tasks.engines.engine import Observed

_RUNNING: Final = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})
_FAILURES: Final = {
    "BOOT_FAIL": "BOOT_FAIL: the node did not boot",
    "DEADLINE": "DEADLINE: the job ended at its deadline",
    "LAUNCH_FAILED": "LAUNCH_FAILED: the node could not start the job",
    "NODE_FAIL": "NODE_FAIL: the node failed",
    "OUT_OF_MEMORY": "OUT_OF_MEMORY: the job used more memory than its limit",
    "PREEMPTED": "PREEMPTED: another job took its place",
    "RECONFIG_FAIL": "RECONFIG_FAIL: the node could not be configured",
    "REVOKED": "REVOKED: another cluster runs the job",
    "TIMEOUT": "TIMEOUT: the job ran longer than its limit",
}
"""Final states in which Slurm ended the job."""
_ORDINARY: Final = frozenset({"", "None", "NonZeroExitCode"})


def observed(job: Mapping[str, Any]) -> Observed:
    """The state of a job in the list of slurmctld, or in that of slurmdbd."""
    states, reason = _states(job)
    times = job.get("time") or {}
    started, ended = _time(job.get("start_time", times.get("start"))), _time(job.get("end_time", times.get("end")))
    code, signal = exit_of(job.get("exit_code"))
    if states & _RUNNING:
        return Observed("running", reason="suspended" if "SUSPENDED" in states else "", started=started)
    if "CANCELLED" in states:
        return Observed("cancelled", None if signal else code, signal, "", started, ended)
    if failure := next((text for state, text in _FAILURES.items() if state in states), ""):
        return Observed("failed", None if signal else code or None, signal, failure, started, ended)
    if "COMPLETED" in states and not signal and not code:
        return Observed("succeeded", 0, None, "", started, ended)
    if states & {"COMPLETED", "FAILED"}:
        return Observed("failed", None if signal else code, signal, reason, started, ended)
    return Observed("starting", reason=reason)


def exit_of(value: Any) -> tuple[int | None, int | None]:
    """The exit code and the signal. Up to v0.0.38 they are one wait status, as in wait(2)."""
    if isinstance(value, int):
        return (None, os.WTERMSIG(value)) if os.WIFSIGNALED(value) else (os.WEXITSTATUS(value), None)
    if not isinstance(value, Mapping):
        return None, None
    signal = value.get("signal") or {}
    number = _number(signal.get("id", signal.get("signal_id")) if isinstance(signal, Mapping) else signal)
    return _number(value.get("return_code")), number or None


def number_of(job: Mapping[str, Any]) -> int:
    """The id of a job."""
    return _number(job.get("job_id")) or 0


def _states(job: Mapping[str, Any]) -> tuple[frozenset[str], str]:
    """The base state with its flags, and the reason if it says something."""
    state = job.get("job_state", job.get("state") or "")
    reason = str(job.get("state_reason") or "")
    if isinstance(state, Mapping):  # slurmdbd
        reason, state = str(state.get("reason") or ""), state.get("current") or ""
    names = [state] if isinstance(state, str) else state
    return frozenset(str(name) for name in names), "" if reason in _ORDINARY else reason


def _time(value: Any) -> float | None:
    """s since 1970. Slurm writes 0 for a time that has not come."""
    return float(number) if (number := _number(value)) else None


def _number(value: Any) -> int | None:
    """A number, or `{"set": true, "infinite": false, "number": 3}`, as versions since v0.0.39 write it."""
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set", True) and not value.get("infinite") else None
    return value if isinstance(value, int) else None
