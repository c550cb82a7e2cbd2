"""The log lines that name the frameworks of watched processes."""

from collections.abc import Iterable

from otel_zernel.component import Logger
from otel_zernel_receivers.ebpf.processes.frameworks import Framework, coverage
from otel_zernel_receivers.ebpf.processes.scanner import ScannedProcess

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
