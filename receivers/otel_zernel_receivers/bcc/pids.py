"""Whether the processes of series still exist."""

from collections.abc import Iterable
from pathlib import Path


class LivingPids:
    """Looks up pids in a procfs."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc

    def gone(self, pids: Iterable[int]) -> set[int]:
        """The pids without a process. BPF has the pids of the machine: in a procfs of a container, nothing is known."""
        if not self._is_of_the_machine():
            return set()
        return {pid for pid in pids if pid and not (self._proc / str(pid)).exists()}

    def _is_of_the_machine(self) -> bool:
        """Whether the procfs has the thread kthreadd of the kernel, which no container sees."""
        try:
            return (self._proc / "2" / "comm").read_text() == "kthreadd\n"
        except OSError:
            return False
