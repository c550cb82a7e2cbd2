"""Scans the processes, probes the libraries that they have mapped, and logs what a user should know about a scan."""

from collections import Counter
from collections.abc import Iterable, Mapping

from otel_zernel.component import Logger
from otel_zernel_libraries.training.frameworks import Framework
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.emit.skipped import SkippedLog
from otel_zernel_receivers.ebpf.probed_files import ProbedFiles
from otel_zernel_receivers.ebpf.probes.marks import Mark
from otel_zernel_receivers.ebpf.processes.files.used_files import MappedLibrary
from otel_zernel_receivers.ebpf.processes.identities import Identities
from otel_zernel_receivers.ebpf.processes.scanner import Reason, Scan, ScannedProcess, Scanner, Selection, coverage


class SilenceLog:
    """Says once which processes the receiver looks for. After a job has been found, the reader knows that it works."""

    def __init__(self, selection: Selection, rescan_interval: float, logger: Logger) -> None:
        is_narrow = selection.names or selection.cgroups or selection.environment
        self._narrowed = " and meets the conditions in `processes`" if is_narrow else ""
        self._rescan_interval = rescan_interval
        self._logger = logger
        self._is_over = False

    def update(self, scan: Scan) -> None:
        """Logs the line if the scan is the first one, and found nothing."""
        if not self._is_over and not scan.processes:
            self._logger.info(
                "No training job yet: looked at %d processes, and none has loaded CUDA, NCCL or PyTorch%s. "
                "Looking again every %g s; `otel-zernel doctor` lists what it sees",
                *(scan.looked_at, self._narrowed, self._rescan_interval),
            )
        self._is_over = True


_MOST = 100
"""Lines logged by one receiver. A process chooses its own name, so the number of different lines has no other limit."""


class FrameworkLog:
    """Logs each framework once for each process name, unless the receiver reports everything about it."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._logged: set[tuple[Framework, str, str]] = set()

    def log(self, processes: Iterable[ScannedProcess]) -> None:
        """Logs the frameworks of a scan that were not logged before."""
        for process in processes:
            text = coverage(process.framework, {used.library for used in process.files})
            line = (process.framework, process.name, text)
            if text and line not in self._logged and len(self._logged) < _MOST:
                self._logged.add(line)
                self._logger.info("%s in %s %d: %s", process.framework, process.name, process.id.pid, text)


class Scanning:
    """The scans of one session."""

    def __init__(self, config: EbpfConfig, files: ProbedFiles, identities: Identities, logger: Logger) -> None:
        selection = selection_of(config)
        self._files = files
        self._identities = identities
        self._scanner = Scanner(selection=selection)
        self._frameworks = FrameworkLog(logger)
        self._silence = SilenceLog(selection, config.rescan_interval, logger)
        self._skipped = SkippedLog(logger)
        self._missing_marks: dict[int, frozenset[Mark]] = {}
        self.pytorch: tuple[int, ...] = ()
        """The pids of the processes that have loaded PyTorch, in the collector's pid namespace."""
        self._with_operators: frozenset[int] = frozenset()
        """Pids of the processes whose operators are probed."""

    def scan(self, *, unreadable_python: int = 0) -> None:
        """Scans the processes, and probes the libraries that they have mapped.

        `unreadable_python` is the number of training processes whose Python cannot be read.
        """
        scan = self._scanner.scan()
        self._files.update(scan)
        self._frameworks.log(scan.processes)
        self._silence.update(scan)
        self._identities.note_scan(scan)
        self.pytorch = tuple(process.own_pid for process in scan.processes if process.framework is Framework.PYTORCH)
        missing = self._files.missing_marks(scan)
        self._missing_marks = {pid: missing[pid] for pid in self._identities.without_workers(missing)}
        with_operators = self._files.with_mark(scan, MappedLibrary.TORCH_CPU, Mark.OPERATORS)
        self._with_operators = frozenset(self._identities.without_workers(with_operators))
        others = {Reason.TOO_MANY_FILES: self._files.without_room, Reason.UNREADABLE_PYTHON: unreadable_python}
        self._skipped.update(+(Counter(scan.skipped) + Counter(others)))

    @property
    def skipped(self) -> Mapping[Reason, int]:
        """What the last scan skipped."""
        return self._skipped.last

    def missing_marks(self, *, without_runs: bool) -> dict[int, frozenset[Mark]]:
        """The missing marks of each process. `without_runs`: the operators of no process are reported."""
        if not without_runs:
            return self._missing_marks
        return self._missing_marks | {
            pid: self._missing_marks.get(pid, frozenset()) | {Mark.OPERATORS} for pid in self._with_operators
        }


def selection_of(config: EbpfConfig) -> Selection:
    """The processes that the configuration selects."""
    return Selection(**dict(config.processes))
