"""The probes on files: put on files that processes begin to use, taken off files that no process uses."""

import errno
import os
import resource
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from threading import Thread

from otel_zernel.component import Context
from otel_zernel_receivers.ebpf.binaries.symbol_names import UnreadableElf
from otel_zernel_receivers.ebpf.budget.overhead import GROUP_KINDS, Group, group_of
from otel_zernel_receivers.ebpf.kernel.kernel_structs import COUNT, NUMBER
from otel_zernel_receivers.ebpf.kernel.libbpf import Link, Object
from otel_zernel_receivers.ebpf.probes.attach_modes import AttachPoint, Mode, attach, descriptor_count
from otel_zernel_receivers.ebpf.probes.libraries import AttachPoints
from otel_zernel_receivers.ebpf.probes.marks import Mark, sentence
from otel_zernel_receivers.ebpf.probes.search import PlaceSearch, Searched, files_to_probe
from otel_zernel_receivers.ebpf.processes.files.file_identity import FileIdentity
from otel_zernel_receivers.ebpf.processes.files.used_files import MappedLibrary
from otel_zernel_receivers.ebpf.processes.scanner import Scan, as_text


class ProbedFile:
    """The probes of one file. The probes of a group can be taken off and put on again."""

    def __init__(self, bpf: Object, mode: Mode, fd: int, places: Sequence[AttachPoint], off: Collection[Group]) -> None:
        """Attaches all probes but those of the groups in `off`. Raises OSError; then nothing is attached."""
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

    @staticmethod
    def descriptors(mode: Mode, places: Sequence[AttachPoint]) -> int:
        """The descriptors that the probes need if those of all groups are on."""
        groups = {group_of(place.probe) for place in places}
        by_group = ([place for place in places if group_of(place.probe) is group] for group in groups)
        return 1 + sum(descriptor_count(mode, of_group) for of_group in by_group)

    def switch_on(self, group: Group) -> None:
        """Puts the group's probes on. Raises BpfError."""
        if (places := self._places[group]) and group not in self._links:
            self._links[group] = self._attach(places)

    def detach_link(self, group: Group) -> Link | None:
        """The link of the group's probes, for the caller to close; None if they are off or there are none."""
        return self._links.pop(group, None)

    def close(self) -> None:
        """Takes all probes off."""
        self._stack.close()

    def _attach(self, places: Sequence[AttachPoint]) -> Link:
        return attach(self._bpf, self._mode, f"/proc/self/fd/{self._fd}", places)

    def _close_links(self) -> None:
        while self._links:
            self._links.popitem()[1].close()


KEPT = 600.0
"""Seconds that probes stay on a file without users. A new process that uses it is counted from its first call on."""

REST = 2.0
"""Minimum time without probes, as a multiple of the time that the kernel takes to remove them. Some are still hit while
it does."""

RESERVED = 256
"""Descriptors that probes leave to the rest of the collector: connections, files, /proc."""

_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
_NOT_YET = (1 << 64) - 1


def most_descriptors() -> int:
    """The number of descriptors that probes may have, by the open-file limit of the collector."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else max(soft - RESERVED, soft // 4)


class ProbedFiles:
    """The files with probes. A file is probed once, even if many processes and containers share it."""

    def __init__(
        self,
        bpf: Object,
        mode: Mode,
        context: Context,
        search: PlaceSearch,
        most: int | None = None,
    ) -> None:
        """Closes `search` at the end. `most` is the number of descriptors that the probes may have, by default
        `most_descriptors()`."""
        self._bpf, self._mode, self._context = bpf, mode, context
        self._search = search
        self._most = most_descriptors() if most is None else most
        self._sizes: dict[FileIdentity, int] = {}
        """The descriptors that are reserved for each probed file."""
        self._too_large: dict[FileIdentity, int] = {}
        """The descriptors that the files without room need."""
        self.without_room = 0
        """Files of the last scan that are not probed, because the others need all descriptors."""
        self._files: dict[FileIdentity, ProbedFile | None] = {}
        self._missing: dict[FileIdentity, frozenset[Mark]] = {}
        self._leaving: set[FileIdentity] = set()
        """Files whose probes are being taken off. New probes on them would count calls twice."""
        self._drivers: set[FileIdentity] = set()
        self._off: set[Group] = set()
        self._failed: set[Group] = set()
        """Groups that could not be put on again, which is logged once."""
        self._closing: list[Thread] = []
        self._rested_at = 0.0
        self._used_at: dict[FileIdentity, float] = {}

    def update(self, scan: Scan) -> None:
        """Probes the files that the scan found, and takes probes off files that were not found for `KEPT` seconds."""
        now = self._context.clock.monotonic()
        used_files = files_to_probe(scan)
        self._used_at.update({used.identity: now for used in used_files})
        self._search.begin_all(used for used in used_files if self._is_new(used.identity))
        for searched in self._search.finished():
            self._add(searched)
        for identity in [identity for identity, used_at in self._used_at.items() if used_at < now - KEPT]:
            self._detach(identity)
        self._make_room({used.identity for used in used_files})

    def _is_new(self, identity: FileIdentity) -> bool:
        """Whether the file can be probed and is not yet. A file without room is searched again when there is room."""
        if identity in self._files or identity in self._leaving or identity in self._search:
            return False
        return self._too_large.get(identity, 0) <= self._room

    @property
    def descriptors(self) -> int:
        """The descriptors that the probed files need."""
        return sum(self._sizes.values())

    @property
    def _room(self) -> int:
        return self._most - self.descriptors

    def _make_room(self, present: Collection[FileIdentity]) -> None:
        """If files have no room, takes the probes off files that no process uses now, the longest unused ones first."""
        self._too_large = {identity: size for identity, size in self._too_large.items() if identity in present}
        self.without_room = len(self._too_large)
        wanted = min(self._too_large.values(), default=0)
        for identity in sorted(self._sizes.keys() - present, key=lambda identity: self._used_at.get(identity, 0.0)):
            if self._room < wanted:
                self._detach(identity)

    def missing_marks(self, scan: Scan) -> dict[int, frozenset[Mark]]:
        """The marks that are missing in the libraries of each process, by its pid in the collector's pid namespace."""
        missing = self._missing
        marks_of = {
            process.own_pid: frozenset(mark for used in process.files for mark in missing.get(used.identity, ()))
            for process in scan.processes
        }
        return {pid: marks for pid, marks in marks_of.items() if marks}

    def with_mark(self, scan: Scan, library: MappedLibrary, mark: Mark) -> frozenset[int]:
        """The processes that use a probed library of this kind that has the mark, by own pid."""
        return frozenset(
            process.own_pid
            for process in scan.processes
            for used in process.files
            if used.library is library and mark not in self._missing.get(used.identity, (mark,))
        )

    def may_switch_on(self) -> bool:
        """Whether the kernel has finished taking probes off, and `REST` has passed since."""
        return (
            not any(thread.is_alive() for thread in self._closing)
            and self._context.clock.monotonic() >= self._rested_at
        )

    def switch_on(self, groups: Iterable[Group]) -> frozenset[Group]:
        """Puts probes on again. Returns the groups that are on in every file.

        The others stay off: partial coverage would give wrong counts.
        """
        return frozenset(group for group in groups if self._try_switch_on(group))

    def _try_switch_on(self, group: Group) -> bool:
        """The driver's probes come last. A driver call inside a runtime call is not counted, so the runtime's probes
        must be on first."""
        try:
            for file in reversed(self._driver_first()):
                file.switch_on(group)
        except OSError as error:
            self.switch_off([group])
            if group not in self._failed:  # it is tried again in every interval
                self._failed.add(group)
                self._context.logger.warning(
                    "Cannot attach the probes of %s again, so their calls are not counted until it works: %s",
                    group,
                    error,
                )
            return False
        self._off.discard(group)
        return True

    def switch_off(self, groups: Iterable[Group]) -> None:
        """Takes probes off, in a thread of its own. Perf links take 0.1 s each."""
        groups = tuple(groups)
        self._off.update(groups)
        detached = [file.detach_link(group) for file in self._driver_first() for group in groups]
        if links := [link for link in detached if link]:
            self._begin_closing(partial(self._close_links, links, groups))

    def _close_links(self, links: Sequence[Link], groups: Iterable[Group]) -> None:
        began = self._context.clock.monotonic()
        with ThreadPoolExecutor(len(links)) as threads:
            list(threads.map(Link.close, links))
        detached_at = self._bpf.maps["detached_at"]
        for kind in chain.from_iterable(GROUP_KINDS[group] for group in groups):
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
        self._search.close()

    def _begin_closing(self, close: Callable[[], None]) -> None:
        """Runs `close` in a thread: the kernel takes 0.1 s for each link, and perf has some hundred links."""
        self._closing = [*(thread for thread in self._closing if thread.is_alive()), Thread(target=close)]
        self._closing[-1].start()

    def _driver_first(self) -> list[ProbedFile]:
        identities = sorted(self._files, key=lambda identity: identity not in self._drivers)
        return [file for identity in identities if (file := self._files[identity])]

    def _add(self, searched: Searched) -> None:
        """Probes a file. One that cannot be probed is not tried again, since it will not change."""
        used, logger, size = searched.used, self._context.logger, 0
        identity, path = used.identity, as_text(used.mapping.path)
        try:
            places = searched.result()
            size = ProbedFile.descriptors(self._mode, places.probed) if places.probed else 0
            if size > self._room:
                self._too_large[identity] = size
                return
            self._too_large.pop(identity, None)
            self._missing[identity] = frozenset(places.missing)
            self._files[identity] = None
            self._log_unprobed(path, places)
            if places.probed:
                with self._record_attach_time():
                    self._files[identity] = ProbedFile(self._bpf, self._mode, searched.fd, places.probed, self._off)
                self._sizes[identity] = size
        except (OSError, UnreadableElf) as error:
            if isinstance(error, OSError) and error.errno in _NO_DESCRIPTORS:
                self._files.pop(identity, None)
                self._too_large[identity] = size
                return
            self._files[identity] = None
            logger.warning("Cannot probe %s, so its calls are not counted: %s", path, error)
            return
        if places.probed:
            logger.info("Probing %d functions of %s", len(places.probed), path)
            if used.library is MappedLibrary.CUDA:
                self._drivers.add(identity)
        else:
            logger.debug("Nothing to probe in %s", path)

    def _log_unprobed(self, path: str, places: AttachPoints) -> None:
        logger = self._context.logger
        if places.single_stepped:
            logger.warning(
                "Not probed in %s, because each call would take 10 us more: %s. Set `single_stepped` to probe them",
                path,
                ", ".join(sorted(set(places.single_stepped))),
            )
        if places.refused:
            logger.warning(
                "Not probed in %s, because the kernel refuses a probe on their first instruction: %s",
                path,
                ", ".join(sorted(set(places.refused))),
            )
        if places.missing:
            logger.warning("%s", sentence(path, places.missing, places.is_stripped))

    @contextmanager
    def _record_attach_time(self) -> Iterator[None]:
        """Gives the time of attaching to the BPF programs. A thread started after it has an empty call history."""
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
        self._sizes.pop(identity, None)
        if file := self._files.pop(identity, None):
            self._leaving.add(identity)
            self._begin_closing(partial(self._leave, identity, file))

    def _leave(self, identity: FileIdentity, file: ProbedFile) -> None:
        file.close()
        self._leaving.discard(identity)
