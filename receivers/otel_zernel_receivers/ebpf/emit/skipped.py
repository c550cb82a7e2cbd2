"""What scans leave out, and what to do about it."""

import logging
from collections import Counter
from collections.abc import Collection, Mapping

from otel_zernel.component import Logger
from otel_zernel_receivers.ebpf.kernel.capabilities import Capability, held
from otel_zernel_receivers.ebpf.processes.scanner import Reason

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


class LeftOut:
    """What scans leave out, of which much comes and goes all the time."""

    def __init__(self, logger: Logger) -> None:
        self.last: Mapping[Reason, int] = {}
        """What the last scan has left out."""
        self._logger = logger
        self._most: Counter[Reason] = Counter()

    def take(self, skipped: Mapping[Reason, int]) -> None:
        """Says in the log what is more than before. That of which nothing can be made is no warning."""
        self.last = skipped
        for reason, count in skipped.items():
            if count > self._most[reason]:
                self._most[reason] = count
                text = advice(reason, held())
                level = logging.INFO if text is _PROTECTED else logging.WARNING
                self._logger.log(level, "Left out (%d): %s", count, text)
