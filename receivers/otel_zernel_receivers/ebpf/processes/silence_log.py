"""The log line of a receiver that has found no process to watch."""

from otel_zernel.component import Logger
from otel_zernel_receivers.ebpf.processes.scanner import Scan, Selection


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
