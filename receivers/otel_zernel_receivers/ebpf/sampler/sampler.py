"""The sampler: gives the kernel what it needs to know of each training process, and runs the clock."""

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from otel_zernel.component import Logger
from otel_zernel_receivers.ebpf.kernel.kernel_structs import COUNT, GIL, NUMBER, PYTHON, PYTHON_THREAD
from otel_zernel_receivers.ebpf.kernel.libbpf import Link, Object
from otel_zernel_receivers.ebpf.probes.attach_modes import SAMPLER
from otel_zernel_receivers.ebpf.processes.files.mappings import Mapping, executable_mappings
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder
from otel_zernel_receivers.ebpf.sampler.clock import attach_clock
from otel_zernel_receivers.ebpf.sampler.executables import executable_of
from otel_zernel_receivers.ebpf.sampler.frame_positions import FramePositions
from otel_zernel_receivers.ebpf.sampler.runtimes import (
    PythonRuntime,
    UnreadablePython,
    find_runtime,
    interpreter_in,
    threads_of,
)
from otel_zernel_receivers.ebpf.sampler.stack_lines import StackLines
from otel_zernel_receivers.ebpf.tables.process_table import ProcessRows, WatchedProcess
from otel_zernel_receivers.ebpf.tables.samples import SampleTable
from otel_zernel_receivers.ebpf.tables.tables import THREADS_OF_PROCESS


@dataclass(slots=True)
class _Known:
    """The facts about a training process that the kernel has."""

    tgid: int
    mappings: list[Mapping] = field(default_factory=list)
    runtime: PythonRuntime | None = None
    threads: dict[int, int] = field(default_factory=dict)
    """The addresses of the states of its Python threads, by thread."""
    is_unreadable: bool = False
    """It runs Python that cannot be read."""


class Sampler:
    """One thread at a time may use it."""

    def __init__(
        self,
        bpf: Object,
        rows: ProcessRows,
        samples: SampleTable,
        folder_of: Callable[[int], ProcessFolder],
        frequency: int,
        logger: Logger,
        proc_root: Path = Path("/proc"),
        *,
        finds_lines: bool = False,
    ) -> None:
        """`folder_of` gives the folder in /proc of a process by its pid. `frequency`: samples a second; 0 for none."""
        self._rows, self._folder_of, self._frequency, self._logger = rows, folder_of, frequency, logger
        self._proc_root = proc_root
        self._samples = samples
        self._positions = FramePositions(bpf.maps["frame_positions"], samples.frames)
        self.lines = StackLines(samples.frames)
        """Of the stacks that were gathered; empty without `finds_lines`."""
        self._finds_lines = finds_lines
        self._samples_waits = bpf.maps["samples_waits"]
        self._by_tgid = {name: bpf.maps[name] for name in ("executables", "gils", "pythons")}
        self._threads = bpf.maps["python_threads"]
        self._program = bpf.programs.get(SAMPLER)
        self._known: dict[WatchedProcess, _Known] = {}
        self._is_stop_logged = False
        self._clock: Link | None = None

    @property
    def unreadable(self) -> int:
        """The number of processes whose Python cannot be read."""
        return sum(known.is_unreadable for known in self._known.values())

    def close(self) -> None:
        """Stops the clock; safe to call twice."""
        if self._clock:
            self._samples_waits.put(NUMBER.pack(0), NUMBER.pack(0))
            self._clock.close()
            self._clock = None

    def set_running(self, *, is_allowed: bool) -> None:
        """Runs the clock, or stops it while the receiver may not take more time of the processes."""
        if not is_allowed and self._clock:
            self.close()
            if not self._is_stop_logged:
                self._is_stop_logged = True
                self._logger.warning("The code that threads run is not sampled while a process exceeds `max_overhead`")
        elif is_allowed and not self._clock and self._frequency and self._program:
            try:
                self._clock = attach_clock(self._program, self._frequency)
                self._samples_waits.put(NUMBER.pack(0), NUMBER.pack(1))
            except OSError as error:
                self._program = None
                self._logger.warning("Cannot sample the code that threads run: %s", str(error).partition("\n")[0])

    def learn(self) -> None:
        """Reads the processes that have begun to train, and forgets those that have ended."""
        training = self._training()
        self._update([process for process in training if process not in self._known])
        if self._finds_lines:  # of threads that have begun, too
            for process in training:
                with suppress(OSError):  # it has ended
                    self._write_threads(process, self._known[process])

    def refresh(self) -> None:
        """Reads all training processes again: they may have loaded libraries and started threads."""
        self._update(self._training())

    def gather(self) -> None:
        """Moves the samples out of the kernel, and gives it those of their functions that show a position."""
        for process, stacks in self._samples.gather().items():
            known = self._known.get(process)
            if known and known.runtime:
                layout = known.runtime.layout.codes
                self._positions.add(known.tgid, process.pid, layout, stacks)
                if self._finds_lines:
                    self.lines.add(process.pid, layout, stacks)

    def _training(self) -> list[WatchedProcess]:
        """The processes that train. Forgets the others first: a process with a new row has the same keys as before."""
        training = self._rows.live(trains=True)
        for process in self._known.keys() - set(training):
            self._forget(self._known.pop(process))
            self.lines.forget(process.pid)
        return training

    def _update(self, processes: Collection[WatchedProcess]) -> None:
        for process in processes:
            known = self._known.setdefault(process, _Known(int(self._rows.array[process.row]["tgid"])))
            with suppress(OSError, ValueError):  # it has ended, or /proc denies access, which the scan reports
                folder = self._folder_of(process.pid)
                mappings = executable_mappings(folder.maps)
                if mappings != known.mappings or known.is_unreadable:
                    self._by_tgid["executables"].put(NUMBER.pack(known.tgid), executable_of(mappings).tobytes())
                    self._find_python(process, known, interpreter_in(mappings, folder.executable), folder.pid)
                    known.mappings = mappings
                self._write_threads(process, known)

    def _find_python(self, process: WatchedProcess, known: _Known, interpreters: list[Mapping], pid: int) -> None:
        try:
            known.runtime = find_runtime(pid, interpreters, self._proc_root, process.pid)
        except UnreadablePython as reason:
            if not known.is_unreadable:
                self._logger.info("The Python of process %d cannot be read: %s", process.pid, reason)
            known.is_unreadable = True
            return
        known.is_unreadable = False
        if known.runtime:
            key, gil = NUMBER.pack(known.tgid), known.runtime.gil
            self._by_tgid["gils"].put(key, np.array((gil.start, gil.stop), GIL).tobytes())
            self._by_tgid["pythons"].put(key, np.array(tuple(known.runtime.layout.frames), PYTHON).tobytes())

    def _write_threads(self, process: WatchedProcess, known: _Known) -> None:
        threads = threads_of(known.runtime, process.pid, THREADS_OF_PROCESS) if known.runtime else {}
        for thread in known.threads.keys() - threads.keys():
            self._threads.delete(_key(known, thread))
            del known.threads[thread]
        for thread, state in threads.items() - known.threads.items():
            known.threads[thread] = state
            self._threads.put(_key(known, thread), COUNT.pack(state))

    def _forget(self, known: _Known) -> None:
        for thread in known.threads:
            self._threads.delete(_key(known, thread))
        if known.tgid not in {one.tgid for one in self._known.values()}:  # by exec, a process keeps its tgid
            self._positions.forget(known.tgid)
            for table in self._by_tgid.values():
                table.delete(NUMBER.pack(known.tgid))


def _key(known: _Known, thread: int) -> bytes:
    return np.array((thread, known.tgid, 0), PYTHON_THREAD).tobytes()
