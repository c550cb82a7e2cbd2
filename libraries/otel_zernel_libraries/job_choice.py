"""The jobs that a user chooses on a command line: by a pid or by a name."""

import argparse
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from otel_zernel.errors import CannotStart
from otel_zernel.text import quoted
from otel_zernel_libraries.job_environment import JOB_ID
from otel_zernel_libraries.pid_namespace import unseen_processes

_NAMES = ("service.name", JOB_ID, "k8s.job.name", "process.executable.name")
"""The attributes of a process by which a user may choose its job."""


@dataclass(frozen=True, slots=True)
class JobChoice:
    """The jobs that the user wants to see. By default all."""

    pid: int | None = None
    """That of a rank, of its launcher, or of a worker of its DataLoader."""
    name: str | None = None
    parents: frozenset[int] = frozenset()
    """The parent of the pid, its grandparent and so on."""

    @classmethod
    def of(cls, options: argparse.Namespace, command: str) -> Self:
        """The choice of the options that `add_choice` has added. Raises `CannotStart` if the process does not exist."""
        pid = options.pid or options.chosen_pid
        if pid is None:
            return cls(name=options.job)
        import psutil  # `--help` does not need it

        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.status() != psutil.STATUS_ZOMBIE:
                return cls(pid, parents=frozenset(parent.pid for parent in process.parents()))
        sentence = f"process {pid} does not exist; `otel-zernel {command}` without a pid watches all jobs"
        raise CannotStart(f"{sentence}. {unseen}" if (unseen := unseen_processes()) else sentence)

    @property
    def is_all(self) -> bool:
        return self.pid is None and self.name is None

    def includes(self, pids: Collection[int], ancestors: Collection[int], names: Collection[str]) -> bool:
        """Whether the user wants to see the job with these processes, their ancestors and these names."""
        if self.pid is not None:
            return self.pid in pids or self.pid in ancestors or not self.parents.isdisjoint(pids)
        return self.name is None or self.name in names


def names_of(process: Mapping[str, object]) -> set[str]:
    """The names of a process's job among the attributes of its resource."""
    return {str(process[name]) for name in _NAMES if process.get(name)}


def add_choice(parser: argparse.ArgumentParser, *, has_positional: bool = True) -> None:
    """Adds the options for a `JobChoice`. Without `has_positional`, the command reads a positional PID itself."""
    chosen = parser.add_mutually_exclusive_group()
    if has_positional:
        chosen.add_argument("pid", nargs="?", type=pid_of, metavar="PID", help="only the job of this process")
    else:
        parser.set_defaults(pid=None)
    chosen.add_argument("-p", "--pid", dest="chosen_pid", type=pid_of, metavar="PID", help="the same as PID")
    chosen.add_argument("--job", metavar="NAME", help="only the job with this name: a script, service or job id")


def pid_of(text: str) -> int:
    """The pid that a word names. Raises `ArgumentTypeError`."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a pid; use a number, or --job NAME")
    return int(text)
