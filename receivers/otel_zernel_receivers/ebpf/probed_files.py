"""The probes that are on files now: put on files that processes begin to use, taken off those that nobody uses."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import chain
from threading import Thread

from otel_zernel.component import Context
from otel_zernel_receivers.ebpf.binaries.symbol_names import UnreadableElf
from otel_zernel_receivers.ebpf.budget.overhead import KINDS, Group, group_of
from otel_zernel_receivers.ebpf.kernel.kernel_structs import COUNT, NUMBER
from otel_zernel_receivers.ebpf.kernel.libbpf import Link, Object
from otel_zernel_receivers.ebpf.probes.attach_modes import AttachPoint, Mode, attach
from otel_zernel_receivers.ebpf.probes.libraries import PROBES, find_attach_points
from otel_zernel_receivers.ebpf.probes.marks import Mark, sentence
from otel_zernel_receivers.ebpf.processes.file_identity import FileIdentity
from otel_zernel_receivers.ebpf.processes.mappings import open_located
from otel_zernel_receivers.ebpf.processes.scanner import MappedLibrary, Scan, UsedFile, as_text

KEPT = 600.0
"""Seconds that probes stay on a file that nobody uses, for whoever begins to: a new process is counted from its first
call on."""

REST = 2.0
"""How many times as long as the kernel took to take probes off they stay off at least: while it does, some are hit."""

_NOT_YET = (1 << 64) - 1


class ProbedFile:
    """The probes of one file. Those of a group can be taken off and put on again."""

    def __init__(self, bpf: Object, mode: Mode, fd: int, places: Sequence[AttachPoint], off: Collection[Group]) -> None:
        """Attaches, but not what is of a group in `off`. Raises OSError; then nothing is attached."""
        self._bpf, self._mode = bpf, mode
        self._places = {
            group: [place for place in places if group_of(place.probe) is group] for group in (None, *Group)
        }
        self._links: dict[Group, Link] = {}
        with ExitStack() as stack:
            self._fd = os.dup(fd)
            stack.callback(os.close, self._fd)
            stack.callback(self._close_links)
            if others := self._places[None]:
                stack.callback(self._attach(others).close)
            for group in Group:
                if group not in off:
                    self.switch_on(group)
            self._stack = stack.pop_all()

    def switch_on(self, group: Group) -> None:
        """Attaches to the group's functions. Raises BpfError."""
        if (places := self._places[group]) and group not in self._links:
            self._links[group] = self._attach(places)

    def take_link(self, group: Group) -> Link | None:
        """The link to the group's functions, for the caller to close; None if there is none."""
        return self._links.pop(group, None)

    def close(self) -> None:
        """Detaches from everything."""
        self._stack.close()

    def _attach(self, places: Sequence[AttachPoint]) -> Link:
        return attach(self._bpf, self._mode, f"/proc/self/fd/{self._fd}", places)

    def _close_links(self) -> None:
        while self._links:
            self._links.popitem()[1].close()


class Attachments:
    """At most one attachment for each file, however many processes and containers share it."""

    def __init__(self, bpf: Object, mode: Mode, context: Context, *, at_any_cost: bool) -> None:
        self._bpf, self._mode, self._context = bpf, mode, context
        self._at_any_cost = at_any_cost
        self._files: dict[FileIdentity, ProbedFile | None] = {}
        self._missing: dict[FileIdentity, frozenset[Mark]] = {}
        self._leaving: set[FileIdentity] = set()
        """Files that probes are being taken off: with others on them, calls would count twice."""
        self._drivers: set[FileIdentity] = set()
        self._off: set[Group] = set()
        self._failed: set[Group] = set()
        """Groups of which it has been said that they cannot be put on again."""
        self._closing: list[Thread] = []
        self._rested_at = 0.0
        self._used_at: dict[FileIdentity, float] = {}

    def update(self, scan: Scan) -> None:
        """Makes the probes those that the scan asks for."""
        now = self._context.clock.monotonic()
        for used in (used for process in scan.processes for used in process.files if used.library in PROBES):
            self._used_at[used.identity] = now
            if used.identity not in self._files and used.identity not in self._leaving:
                # Its process may have ended meanwhile. It is then opened by way of another one, or after the next scan.
                with suppress(OSError), open_located(used.file) as fd:
                    self._files[used.identity] = self._attach(used, fd)
        for identity in [one for one, used_at in self._used_at.items() if used_at < now - KEPT]:
            self._detach(identity)

    def missing(self, scan: Scan) -> dict[int, frozenset[Mark]]:
        """The marks that libraries of each process lack, by its pid in the collector's namespace."""
        missing = self._missing
        found = {
            process.own_pid: frozenset(mark for used in process.files for mark in missing.get(used.identity, ()))
            for process in scan.processes
        }
        return {pid: marks for pid, marks in found.items() if marks}

    def may_switch_on(self) -> bool:
        """Whether the kernel is done with what was switched off, and has had its rest."""
        return (
            not any(thread.is_alive() for thread in self._closing)
            and self._context.clock.monotonic() >= self._rested_at
        )

    def switch_on(self, groups: Iterable[Group]) -> frozenset[Group]:
        """Puts probes on again, and returns the groups that are on in every file; the others stay off, since of calls
        that are seen in some files only nothing true can be told."""
        return frozenset(group for group in groups if self._is_switched_on(group))

    def _is_switched_on(self, group: Group) -> bool:
        """The driver's come last: a call of the driver is one of the program's own only if it is not inside of one of
        the runtime, which must be seen to know."""
        try:
            for file in reversed(self._driver_first()):
                file.switch_on(group)
        except OSError as error:
            self.switch_off([group])
            if group not in self._failed:  # it is tried again and again
                self._failed.add(group)
                self._context.logger.warning("Cannot put probes on again, calls are not counted (%s): %s", group, error)
            return False
        self._off.discard(group)
        return True

    def switch_off(self, groups: Iterable[Group]) -> None:
        """Takes probes off. They are off in a moment, by perf one after the other, which nobody waits for."""
        groups = tuple(groups)
        self._off.update(groups)
        taken = [file.take_link(group) for file in self._driver_first() for group in groups]
        if links := [link for link in taken if link]:
            self._begin_closing(partial(self._close_links, links, groups))

    def _close_links(self, links: Sequence[Link], groups: Iterable[Group]) -> None:
        began = self._context.clock.monotonic()
        with ThreadPoolExecutor(len(links)) as threads:
            list(threads.map(Link.close, links))
        detached_at = self._bpf.maps["detached_at"]
        for kind in chain.from_iterable(KINDS[group] for group in groups):
            detached_at.put(NUMBER.pack(kind), COUNT.pack(time.monotonic_ns()))
        now = self._context.clock.monotonic()
        self._rested_at = now + REST * (now - began)

    def close(self) -> None:
        """Takes all probes off."""
        self.switch_off(Group)
        for identity in list(self._files):
            self._detach(identity)
        for thread in self._closing:
            thread.join()

    def _begin_closing(self, close: Callable[[], None]) -> None:
        """The kernel takes 0.1 s for each link, of which perf has some hundred: nobody waits for that."""
        self._closing = [*(thread for thread in self._closing if thread.is_alive()), Thread(target=close)]
        self._closing[-1].start()

    def _driver_first(self) -> list[ProbedFile]:
        identities = sorted(self._files, key=lambda identity: identity not in self._drivers)
        return [file for identity in identities if (file := self._files[identity])]

    def _attach(self, used: UsedFile, fd: int) -> ProbedFile | None:
        """None where it does not work; it is not tried again, since the file will not change."""
        logger, path, probes = self._context.logger, as_text(used.mapping.path), PROBES[used.library]
        try:
            places = find_attach_points(fd, probes, at_any_cost=self._at_any_cost)
            self._missing[used.identity] = frozenset(places.missing)
            if places.single_stepped:
                logger.warning("Not probed in %s, since each call would take 10 us: %s", path, places.single_stepped)
            if places.refused:
                logger.warning(
                    "Not probed in %s, since the kernel refuses their first instruction: %s", path, places.refused
                )
            if places.missing:
                logger.warning("%s", sentence(path, places.missing, places.is_stripped))
            if not places.probed:
                return None
            with self._bpf_is_told():
                file = ProbedFile(self._bpf, self._mode, fd, places.probed, self._off)
        except (OSError, UnreadableElf) as error:
            logger.warning("Cannot probe %s: %s", path, error)
            return None
        logger.info("Probing %d functions of %s", len(places.probed), path)
        if used.library is MappedLibrary.CUDA:
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
        self._missing.pop(identity, None)
        if file := self._files.pop(identity, None):
            self._leaving.add(identity)
            self._begin_closing(partial(self._leave, identity, file))

    def _leave(self, identity: FileIdentity, file: ProbedFile) -> None:
        file.close()
        self._leaving.discard(identity)
