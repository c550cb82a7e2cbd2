"""The probes that are on files now: put on files that processes begin to use, taken off those that nobody uses."""

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from otel_zernel.component import Context
from otel_zernel_receivers.ebpf.attaching import Mode, Place, attach
from otel_zernel_receivers.ebpf.elf import UnreadableElf
from otel_zernel_receivers.ebpf.file_identity import FileIdentity
from otel_zernel_receivers.ebpf.layout import COUNT, NUMBER
from otel_zernel_receivers.ebpf.libbpf import Link, Object
from otel_zernel_receivers.ebpf.libraries import PROBES, find_places
from otel_zernel_receivers.ebpf.mappings import open_located
from otel_zernel_receivers.ebpf.overhead import LAUNCHES
from otel_zernel_receivers.ebpf.processes import Library, Scan, UsedFile

KEPT = 600.0
"""Seconds that probes stay on a file that nobody uses, for whoever begins to: a new process is counted from its first
call on."""

_NOT_YET = (1 << 64) - 1


class ProbedFile:
    """The probes of one file. Those on launches can be taken off and put on again."""

    def __init__(self, bpf: Object, mode: Mode, fd: int, places: Sequence[Place], *, is_on: bool) -> None:
        """Attaches, to launches if `is_on`. Raises OSError; then nothing is attached."""
        self._bpf, self._mode = bpf, mode
        self._launches = [place for place in places if place.probe.operation in LAUNCHES]
        others = [place for place in places if place.probe.operation not in LAUNCHES]
        with ExitStack() as stack:
            self._fd = os.dup(fd)
            stack.callback(os.close, self._fd)
            if others:
                stack.callback(self._attach(others).close)
            self._link = self._attach(self._launches) if is_on and self._launches else None
            self._stack = stack.pop_all()

    def switch_on(self) -> None:
        """Attaches to launches. Raises BpfError."""
        if self._launches and not self._link:
            self._link = self._attach(self._launches)

    def switch_off(self) -> None:
        """Detaches from launches. The probes are off in a moment, but the kernel takes up to 0.1 s to say so."""
        if self._link:
            self._link.close()
        self._link = None

    def close(self) -> None:
        """Detaches from everything."""
        self.switch_off()
        self._stack.close()

    def _attach(self, places: Sequence[Place]) -> Link:
        return attach(self._bpf, self._mode, f"/proc/self/fd/{self._fd}", places)


class Attachments:
    """At most one attachment for each file, however many processes and containers share it."""

    def __init__(self, bpf: Object, mode: Mode, context: Context, *, at_any_cost: bool) -> None:
        self._bpf, self._mode, self._context = bpf, mode, context
        self._at_any_cost = at_any_cost
        self._files: dict[FileIdentity, ProbedFile | None] = {}
        self._drivers: set[FileIdentity] = set()
        self._is_on = True
        self._used_at: dict[FileIdentity, float] = {}

    def update(self, scan: Scan) -> None:
        """Makes the probes those that the scan asks for."""
        now = self._context.clock.monotonic()
        for process in scan.processes:
            for used in process.files:
                if used.library in PROBES:
                    self._used_at[used.identity] = now
                    if used.identity not in self._files:
                        self._files[used.identity] = self._attach(used)
        for identity in [one for one, used_at in self._used_at.items() if used_at < now - KEPT]:
            self._detach(identity)

    def switch_on(self) -> None:
        """Puts the probes on launches on again. The driver's come last: a launch of the driver is one of the program's
        own only if it is not inside of a launch of the runtime, which must be seen to know."""
        self._is_on = True
        for file in reversed(self._driver_first()):
            try:
                file.switch_on()
            except OSError as error:
                self._context.logger.warning("Cannot probe launches again: %s", error)

    def switch_off(self) -> None:
        """Takes the probes on launches off, at one time since the kernel makes us wait for each."""
        self._is_on = False
        if files := self._driver_first():
            with ThreadPoolExecutor(len(files)) as threads:
                list(threads.map(ProbedFile.switch_off, files))

    def close(self) -> None:
        """Takes all probes off."""
        for identity in list(self._files):
            self._detach(identity)

    def _driver_first(self) -> list[ProbedFile]:
        identities = sorted(self._files, key=lambda identity: identity not in self._drivers)
        return [file for identity in identities if (file := self._files[identity])]

    def _attach(self, used: UsedFile) -> ProbedFile | None:
        """None where it does not work; it is not tried again, since the file will not change."""
        logger, path = self._context.logger, used.mapping.path
        try:
            with open_located(used.file) as fd:
                places = find_places(fd, PROBES[used.library], at_any_cost=self._at_any_cost)
                if places.too_dear:
                    logger.warning("Not probed in %s, since each call would take 10 us: %s", path, places.too_dear)
                if not places.probed:
                    return None
                with self._bpf_is_told():
                    file = ProbedFile(self._bpf, self._mode, fd, places.probed, is_on=self._is_on)
        except (OSError, UnreadableElf) as error:
            logger.warning("Cannot probe %s: %s", path, error)
            return None
        logger.info("Probing %d functions of %s", len(places.probed), path)
        if used.library is Library.CUDA:
            self._drivers.add(used.identity)
        return file

    @contextmanager
    def _bpf_is_told(self) -> Iterator[None]:
        """Of threads that begin when all probes are in place, the kernel knows what they have not done."""
        attached_at = self._bpf.maps["attached_at"]
        attached_at.put(NUMBER.pack(0), COUNT.pack(_NOT_YET))
        try:
            yield
        finally:
            attached_at.put(NUMBER.pack(0), COUNT.pack(time.monotonic_ns()))

    def _detach(self, identity: FileIdentity) -> None:
        self._used_at.pop(identity, None)
        self._drivers.discard(identity)
        if file := self._files.pop(identity):
            file.close()
