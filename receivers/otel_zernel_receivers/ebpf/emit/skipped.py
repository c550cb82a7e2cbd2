"""Processes and files that scans skip: one sentence for each reason, with what to do."""

import logging
from collections import Counter
from collections.abc import Collection, Mapping

from otel_zernel.component import Logger
from otel_zernel_receivers.ebpf.kernel.capabilities import Capability, held
from otel_zernel_receivers.ebpf.processes.scanner import MOST_FILES, Reason


def skipped_sentence(reason: Reason, count: int, capabilities: Collection[Capability]) -> str:
    """What was skipped, and what to do about it with these capabilities."""
    processes = "1 process" if count == 1 else f"{count} processes"
    files = "1 mapped file" if count == 1 else f"{count} mapped files"
    if _is_protected(reason, capabilities):
        return (
            f"Cannot inspect {processes}: permission denied although CAP_SYS_PTRACE is held. If one is a training job, "
            "check its AppArmor, SELinux or seccomp profile"
        )
    sentences = {
        Reason.PERMISSION: (
            f"Cannot inspect {processes}: permission denied. For processes of other users and containers, give the "
            "collector CAP_SYS_PTRACE"
        ),
        Reason.UNREACHABLE_FILE: (
            f"Cannot open {files}, so their functions are not probed. For deleted and replaced files, give the "
            "collector CAP_CHECKPOINT_RESTORE"
        ),
        Reason.TOO_MANY_FILES: (
            f"Cannot probe {files}, because there are too many. The limits are {MOST_FILES} files in a process, and "
            "the open-file limit of the collector (LimitNOFILE in systemd)"
        ),
        Reason.REPLACED_CODE: (
            f"Cannot probe {files}, because a process has copied the code to memory without a file, for example to "
            "huge pages. Calls of that code are not counted: switch the copying off in the job"
        ),
        Reason.UNREADABLE_PYTHON: (
            f"Cannot read the Python of {processes}, so waits for the GIL count as waits for a lock. Python 3.9 to "
            "3.14 can be read, except free-threaded builds. For processes of other users, give the collector "
            "CAP_SYS_PTRACE"
        ),
        Reason.OUTSIDE_PID_NAMESPACE: (
            f"Cannot watch {processes} outside of this pid namespace. Run the collector in the host's pid namespace"
        ),
        Reason.BELOW_PID_NAMESPACE: (
            f"Cannot watch {processes} in pid namespaces below this one. Run the collector in the host's pid namespace"
        ),
    }
    return sentences[reason]


def _is_protected(reason: Reason, capabilities: Collection[Capability]) -> bool:
    """Whether no capability of the collector would help."""
    return reason is Reason.PERMISSION and Capability.CAP_SYS_PTRACE in capabilities


class SkippedLog:
    """Logs what scans skip. A number is logged when it is the highest so far, since it changes all the time."""

    def __init__(self, logger: Logger) -> None:
        self.last: Mapping[Reason, int] = {}
        """Items that the last scan skipped."""
        self._logger = logger
        self._highest: Counter[Reason] = Counter()

    def update(self, skipped: Mapping[Reason, int]) -> None:
        """Records a scan. What the user cannot change by a capability is logged as info, the rest as a warning."""
        self.last = skipped
        for reason, count in skipped.items():
            if count > self._highest[reason]:
                self._highest[reason] = count
                capabilities = held()
                level = logging.INFO if _is_protected(reason, capabilities) else logging.WARNING
                self._logger.log(level, "%s", skipped_sentence(reason, count, capabilities))
