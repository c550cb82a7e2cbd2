"""Finds the processes that use CUDA, NCCL, PyTorch or another framework, and the files that they use.

    scanner = Scanner(selection=Selection(names=("python*",)))
    scan = scanner.scan()                      # blocks for about 50 us per process of the machine: call it in a thread
    for process in scan.processes:
        for used in process.files:
            with open_located(used.file) as fd:    # see files/mappings.py
                ...
    scan.skipped                               # what was skipped: reason -> count

Several processes may map one file: its `identity` shows it, so that probes are attached once. A replaced library is
another file.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Mapping as ReadOnlyDict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path

from otel_zernel_libraries.training.frameworks import Framework, frameworks_of, main_framework
from otel_zernel_libraries.training.programs import script_of
from otel_zernel_receivers.ebpf.processes.files.mappings import executable_mappings, replaced_mappings
from otel_zernel_receivers.ebpf.processes.files.used_files import KnownFiles, UsedFile
from otel_zernel_receivers.ebpf.processes.pid_namespace import PidNamespace
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder, ProcessId


class Reason(StrEnum):
    """The reason why a scan skipped something."""

    PERMISSION = "permission"
    """Processes whose folder in /proc denies access, which usually needs CAP_SYS_PTRACE."""
    UNREACHABLE_FILE = "unreachable_file"
    """Mapped files that cannot be opened. Deleted and replaced files need CAP_CHECKPOINT_RESTORE."""
    OUTSIDE_PID_NAMESPACE = "outside_pid_namespace"
    """Processes that have no pid in the collector's pid namespace."""
    BELOW_PID_NAMESPACE = "below_pid_namespace"
    """Processes in a pid namespace below the collector's, if that is not the machine's initial one. Programs in the
    kernel can identify processes of the collector's own namespace only."""

    REPLACED_CODE = "replaced_code"
    """Mapped files whose code the process has replaced by a copy in memory without a file."""
    TOO_MANY_FILES = "too_many_files"
    """Mapped files beyond the limits on probed files: per process, and on the descriptors of the collector."""
    UNREADABLE_PYTHON = "unreadable_python"
    """Training processes whose Python interpreter cannot be read."""


_GENERATIONS = 4
"""From a process to the one whose script it runs: one of a forkserver is a grandchild."""
_LONGEST_PROGRAM = 128
"""Characters of the name of a program."""
MOST_FILES = 32
"""Files of one process that are probed. A training job with PyTorch has about 10."""


_CALLS = {
    "CUDA": frozenset({"cudart", "cuda", "executable"}),
    "NCCL": frozenset({"nccl", "executable"}),
}
"""The kinds of files (`MappedLibrary`) in which each library's calls are probed."""


@dataclass(frozen=True, slots=True)
class ScannedProcess:
    """A process that uses one of the libraries, or a framework."""

    id: ProcessId
    """Its pid in the scanned /proc."""
    own_pid: int
    """Its pid in the collector's pid namespace, which programs in the kernel report."""
    parent: int
    """The pid of its parent in the scanned /proc; 0 if /proc does not show the parent."""
    name: str
    """Its name in the kernel (comm), at most 15 characters."""
    executable: str
    """The file name of its executable; empty if /proc denies access."""
    program: str
    """Its script, such as `train.py`; else the name in its command line."""
    cgroups: tuple[str, ...]
    """The paths of its control groups: one for cgroup v2, and one per hierarchy for cgroup v1."""
    environment: ReadOnlyDict[str, str]
    """The requested variables; a scan requests those of the selection. Values are cut at 256 characters."""
    files: tuple[UsedFile, ...]
    frameworks: frozenset[Framework] = frozenset()
    """The frameworks whose libraries it has mapped."""

    @property
    def framework(self) -> Framework:
        """The framework that describes the process best."""
        return main_framework(self.frameworks)


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects the processes to watch. Patterns are shell-like (`python*`). An empty condition selects all."""

    names: Sequence[str] = ()
    """Patterns for the process's name or that of its executable."""
    cgroups: Sequence[str] = ()
    environment: ReadOnlyDict[str, str] = field(default_factory=dict)
    """Variables that must be set, with a pattern for the value of each."""

    def selects(self, process: ScannedProcess) -> bool:
        """Whether the process meets every condition."""
        return (
            _any_matches(self.names, process.name, process.executable)
            and _any_matches(self.cgroups, *process.cgroups)
            and all(
                name in process.environment and fnmatchcase(process.environment[name], pattern)
                for name, pattern in self.environment.items()
            )
        )


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of a scan. Processes are in the order of their start."""

    processes: tuple[ScannedProcess, ...]
    skipped: ReadOnlyDict[Reason, int]
    looked_at: int = 0
    """The number of all processes, with those that are neither selected nor skipped."""


class Scanner:
    """Scans `proc_root` repeatedly for the processes that `selection` selects."""

    def __init__(self, proc_root: Path = Path("/proc"), selection: Selection | None = None) -> None:
        self._root = proc_root
        self._selection = selection or Selection()
        self._namespace = PidNamespace(proc_root)
        self._files = KnownFiles(proc_root)

    def scan(self) -> Scan:
        """The current processes. Processes that start or end during the scan may be missed.

        Raises OSError if `proc_root` cannot be read.
        """
        skipped: Counter[Reason] = Counter()
        pids = sorted(int(entry.name) for entry in self._root.iterdir() if entry.name.isdecimal())
        processes = sorted(self._processes(pids, skipped), key=lambda process: process.id.start_time)
        self._files.forget_unused()
        return Scan(tuple(processes), +skipped, len(pids))

    def _processes(self, pids: Iterable[int], skipped: Counter[Reason]) -> Iterator[ScannedProcess]:
        for pid in pids:
            try:
                process = self._process(ProcessFolder(self._root, pid), skipped)
            except PermissionError:
                skipped[Reason.PERMISSION] += 1
            except (OSError, ValueError):  # it ended during the scan
                continue
            else:
                if process:
                    yield process

    def _process(self, folder: ProcessFolder, skipped: Counter[Reason]) -> ScannedProcess | None:
        """The process, if it is selected and uses one of the libraries or a framework."""
        mappings = executable_mappings(folder.maps)
        probed = list(self._files.probed(folder, mappings))
        replaced = list(self._files.probed(folder, replaced_mappings(folder.maps)))
        frameworks = frameworks_of(mapping.path for mapping in mappings)
        if not probed and not replaced and not frameworks:
            return None
        process = read_process(folder, self._namespace.pid_of(folder.pid) or 0, self._selection.environment)
        if not self._selection.selects(process):
            return None
        if reason := self._unidentifiable(process):
            skipped[reason] += 1
            return None
        skipped[Reason.REPLACED_CODE] += len(replaced)
        if not probed and not frameworks:
            return None
        skipped[Reason.TOO_MANY_FILES] += len(probed[MOST_FILES:])
        files = [self._files.located(process.id, library, mapping) for library, mapping in probed[:MOST_FILES]]
        skipped[Reason.UNREACHABLE_FILE] += files.count(None)
        if folder.start_time() != process.id.start_time:
            return None  # its pid belongs to another process now
        return replace(process, files=tuple(filter(None, files)), frameworks=frameworks)

    def _unidentifiable(self, process: ScannedProcess) -> Reason | None:
        """The reason why programs in the kernel cannot identify the process; None if they can."""
        if not process.own_pid:
            return Reason.OUTSIDE_PID_NAMESPACE
        return None if self._namespace.can_identify(process.id.pid) else Reason.BELOW_PID_NAMESPACE


def read_process(folder: ProcessFolder, own_pid: int, variables: Collection[str]) -> ScannedProcess:
    """The facts about a process, without its files. Raises OSError or ValueError if it has ended."""
    return ScannedProcess(
        id=ProcessId(folder.pid, folder.start_time()),
        own_pid=own_pid,
        parent=folder.parent(),
        name=as_text(folder.name),
        executable=as_text(folder.executable.rpartition("/")[2]),
        program=_program(folder),
        cgroups=folder.cgroups,
        environment=folder.environment(variables, own_pid),
        files=(),
    )


def _program(folder: ProcessFolder) -> str:
    """The script of a process. A process that multiprocessing has started runs that of the process that started it."""
    with suppress(OSError, ValueError):
        for _ in range(_GENERATIONS):
            words = folder.command_line.rstrip(b"\0").split(b"\0")  # an empty word may be the value of an option
            script = script_of([word.decode(errors="replace") for word in words])
            if script or words == [b""]:
                return script[:_LONGEST_PROGRAM]
            folder = ProcessFolder(folder.path.parent, folder.parent())
    return ""


def as_text(name: str) -> str:
    """A file name as valid UTF-8. File names may contain any bytes; invalid ones are replaced."""
    return os.fsencode(name).decode(errors="replace")


def _any_matches(patterns: Sequence[str], *values: str) -> bool:
    return not patterns or any(fnmatchcase(value, pattern) for pattern in patterns for value in values)


def coverage(framework: Framework, libraries: Collection[str]) -> str:
    """How much the receiver counts of a process that uses these libraries; empty if it also reports phases."""
    if framework is Framework.PYTORCH:
        return ""
    counted = [name for name, kinds in _CALLS.items() if not kinds.isdisjoint(libraries)]
    calls = f"calls of {' and '.join(counted)} are counted" if counted else "it has loaded no library of CUDA or NCCL"
    if framework is Framework.VLLM:
        return f"{calls}; it serves a model, so it has no training phases"
    return f"{calls}; its phases are not reported"
