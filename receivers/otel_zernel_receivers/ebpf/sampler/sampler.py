"""The sampler: gives the kernel what it needs to know of each training process, and runs the clock."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from otel_zernel.component import Logger
from otel_zernel_receivers.ebpf.kernel.kernel_structs import GIL, NUMBER
from otel_zernel_receivers.ebpf.kernel.libbpf import Link, Object
from otel_zernel_receivers.ebpf.probes.attach_modes import SAMPLER
from otel_zernel_receivers.ebpf.processes.files.mappings import Mapping, executable_mappings
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder
from otel_zernel_receivers.ebpf.sampler.clock import attach_clock
from otel_zernel_receivers.ebpf.sampler.executables import executable_of
from otel_zernel_receivers.ebpf.sampler.runtimes import UnreadablePython, find_runtime, interpreter_in
from otel_zernel_receivers.ebpf.tables.process_table import ProcessRows, WatchedProcess


class Sampler:
    """One thread at a time may use it."""

    def __init__(
        self,
        bpf: Object,
        rows: ProcessRows,
        folder_of: Callable[[int], ProcessFolder],
        frequency: int,
        logger: Logger,
        proc_root: Path = Path("/proc"),
    ) -> None:
        """`folder_of` gives the folder in /proc of a process by its pid. `frequency`: samples a second; 0 for none."""
        self.unreadable: frozenset[WatchedProcess] = frozenset()
        """The processes whose Python cannot be read."""
        self._rows, self._folder_of, self._frequency, self._logger = rows, folder_of, frequency, logger
        self._proc_root = proc_root
        self._executables, self._gils = bpf.maps["executables"], bpf.maps["gils"]
        self._program = bpf.programs.get(SAMPLER)
        self._mappings: dict[WatchedProcess, list[Mapping]] = {}
        """The mappings that the kernel knows, of each training process."""
        self._tgids: dict[WatchedProcess, bytes] = {}
        self._is_stop_logged = False
        self._clock: Link | None = None

    def close(self) -> None:
        """Stops the clock; safe to call twice."""
        self._stop()

    def set_running(self, *, is_allowed: bool) -> None:
        """Runs the clock, or stops it while the receiver may not take more time of the processes."""
        if not is_allowed and self._clock:
            self._stop()
            if not self._is_stop_logged:
                self._is_stop_logged = True
                self._logger.warning("The code that threads run is not sampled while a process exceeds `max_overhead`")
        elif is_allowed and not self._clock and self._frequency and self._program:
            try:
                self._clock = attach_clock(self._program, self._frequency)
            except OSError as error:
                self._program = None
                self._logger.warning("Cannot sample the code that threads run: %s", str(error).partition("\n")[0])

    def learn(self) -> None:
        """Gives the kernel the executable memory and the GIL of processes that have begun to train."""
        training = self._rows.live(trains=True)
        for process in self._mappings.keys() - set(training):
            self._forget(process)
        for process in training:
            if process not in self._mappings:
                self._update(process)

    def refresh(self) -> None:
        """Reads the executable memory of all training processes again. Libraries may have been loaded."""
        for process in self._rows.live(trains=True):
            self._update(process)

    def _update(self, process: WatchedProcess) -> None:
        with suppress(OSError, ValueError):  # it has ended, or /proc denies access, which the scan reports
            folder = self._folder_of(process.pid)
            mappings = executable_mappings(folder.maps)
            if self._mappings.get(process) == mappings:
                return
            tgid = self._tgids[process] = NUMBER.pack(int(self._rows.array[process.row]["tgid"]))
            self._executables.put(tgid, executable_of(mappings).tobytes())
            self._find_python(process, folder, mappings)
            self._mappings[process] = mappings

    def _find_python(self, process: WatchedProcess, folder: ProcessFolder, mappings: list[Mapping]) -> None:
        interpreters = interpreter_in(mappings, folder.executable)
        try:
            runtime = find_runtime(folder.pid, interpreters, self._proc_root, process.pid)
        except UnreadablePython as reason:
            self.unreadable |= {process}
            self._logger.info("The Python of process %d cannot be read: %s", process.pid, reason)
        else:
            self.unreadable -= {process}
            if runtime:
                gil = np.array((runtime.gil.start, runtime.gil.stop), GIL)
                self._gils.put(self._tgids[process], gil.tobytes())

    def _forget(self, process: WatchedProcess) -> None:
        del self._mappings[process]
        self.unreadable -= {process}
        tgid = self._tgids.pop(process)
        if tgid not in self._tgids.values():  # a process that has executed another program keeps its tgid
            self._executables.delete(tgid)
            self._gils.delete(tgid)

    def _stop(self) -> None:
        if self._clock:
            self._clock.close()
            self._clock = None
