"""What scans leave out, and what to do about it."""

import logging
from collections.abc import Collection

from otel_zernel.component import Logger
from otel_zernel_receivers.ebpf.capabilities import Capability, held
from otel_zernel_receivers.ebpf.processes import Reason

_ADVICE = {
    Reason.PERMISSION: "processes may not be looked at; those of other users and containers take CAP_SYS_PTRACE",
    Reason.UNREACHABLE_FILE: "mapped files cannot be opened; deleted and replaced ones take CAP_CHECKPOINT_RESTORE",
    Reason.OUTSIDE_PID_NAMESPACE: "processes are outside of this pid namespace; run the collector in that of the host",
    Reason.BELOW_PID_NAMESPACE: "processes are in pid namespaces below this one; run the collector in that of the host",
}
_PROTECTED = (
    "processes may not be looked at by anybody; if one is a job, see the profile of AppArmor, SELinux or seccomp"
)


def advice(reason: Reason, capabilities: Collection[Capability]) -> str:
    """What is left out for a reason, and what would change it for who has these capabilities."""
    if reason is Reason.PERMISSION and Capability.CAP_SYS_PTRACE in capabilities:
        return _PROTECTED
    return _ADVICE[reason]


def tell(logger: Logger, reason: Reason, count: int) -> None:
    """Says in the log how much is left out. That of which nothing can be made is no warning."""
    text = advice(reason, held())
    logger.log(logging.INFO if text is _PROTECTED else logging.WARNING, "Left out (%d): %s", count, text)
