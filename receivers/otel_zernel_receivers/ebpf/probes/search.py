"""Searches files for places to probe, in a thread of its own: the files of other users may be made to be slow."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass

from otel_zernel_receivers.ebpf.probes.libraries import PROBES, AttachPoints, find_attach_points
from otel_zernel_receivers.ebpf.processes.files.file_identity import FileIdentity
from otel_zernel_receivers.ebpf.processes.files.mappings import open_located
from otel_zernel_receivers.ebpf.processes.files.used_files import UsedFile
from otel_zernel_receivers.ebpf.processes.scanner import Scan

PATIENCE = 2.0
"""Seconds to wait for a search. The largest library of PyTorch takes 0.15 s."""
MOST = 16
"""Files that are searched or wait for it. Each is open, and the files of other jobs wait behind them."""

Find = Callable[..., AttachPoints]
"""`find_attach_points`."""


@dataclass(frozen=True, slots=True)
class Searched:
    """A file that was searched. `result` raises OSError or UnreadableElf."""

    used: UsedFile
    fd: int
    """Open; the caller of `finished` must not close it."""
    result: Callable[[], AttachPoints]


def files_to_probe(scan: Scan) -> list[UsedFile]:
    """The files of all processes that may have functions to probe."""
    return [used for process in scan.processes for used in process.files if used.library in PROBES]


class PlaceSearch:
    """The files that are being searched. One thread at a time may use it."""

    def __init__(self, *, at_any_cost: bool, find: Find = find_attach_points) -> None:
        self._at_any_cost = at_any_cost
        self._find = find
        self._pending: dict[FileIdentity, tuple[UsedFile, int, Future[AttachPoints]]] = {}
        self._thread = ThreadPoolExecutor(1, "zernel-elf")

    def __contains__(self, identity: FileIdentity) -> bool:
        return identity in self._pending

    @property
    def is_full(self) -> bool:
        """Whether no further search can begin before another one is finished."""
        return len(self._pending) >= MOST

    def begin_all(self, files: Iterable[UsedFile]) -> None:
        """Searches the files that are not being searched, as long as there is room.

        If a file's process has ended, it is opened through another process, or after the next scan.
        """
        for used in files:
            if used.identity not in self and not self.is_full:
                with suppress(OSError), open_located(used.file) as fd:
                    self.begin(used, fd)

    def begin(self, used: UsedFile, fd: int) -> None:
        """Searches the open file, which the caller may close. Raises OSError."""
        own = os.dup(fd)
        future = self._thread.submit(self._find, own, PROBES[used.library], at_any_cost=self._at_any_cost)
        self._pending[used.identity] = used, own, future

    def settle(self, patience: float = PATIENCE) -> None:
        """Waits until all searches have finished, but at most `patience` s."""
        wait((future for _, _, future in self._pending.values()), patience)

    def finished(self, patience: float = PATIENCE) -> Iterator[Searched]:
        """The finished searches. Waits up to `patience` s for the others; what is not finished then, comes later."""
        self.settle(patience)
        for identity, (used, fd, future) in list(self._pending.items()):
            if future.done():
                del self._pending[identity]
                try:
                    yield Searched(used, fd, future.result)
                finally:
                    os.close(fd)

    def close(self) -> None:
        """Ends the thread after the file that it searches now, which takes 2 s at most. Safe to call twice."""
        self._thread.shutdown(cancel_futures=True)
        while self._pending:
            os.close(self._pending.popitem()[1][1])
