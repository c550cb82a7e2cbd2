"""The probes that are on files now: put on files that processes begin to use, taken off those that nobody uses."""

from otel_zernel.component import Context
from otel_zernel_receivers.ebpf.attaching import Mode, attach
from otel_zernel_receivers.ebpf.elf import UnreadableElf
from otel_zernel_receivers.ebpf.file_identity import FileIdentity
from otel_zernel_receivers.ebpf.libbpf import Link, Object
from otel_zernel_receivers.ebpf.libraries import PROBES, find_places
from otel_zernel_receivers.ebpf.mappings import open_located
from otel_zernel_receivers.ebpf.processes import Scan, UsedFile

KEPT = 600.0
"""Seconds that probes stay on a file that nobody uses, for whoever begins to: a new process is counted from its first
call on."""


class Attachments:
    """At most one attachment for each file, however many processes and containers share it."""

    def __init__(self, bpf: Object, mode: Mode, context: Context, *, at_any_cost: bool) -> None:
        self._bpf, self._mode, self._context = bpf, mode, context
        self._at_any_cost = at_any_cost
        self._links: dict[FileIdentity, Link | None] = {}
        self._used_at: dict[FileIdentity, float] = {}

    def update(self, scan: Scan) -> None:
        """Makes the probes those that the scan asks for."""
        now = self._context.clock.monotonic()
        for process in scan.processes:
            for used in process.files:
                if used.library in PROBES:
                    self._used_at[used.identity] = now
                    if used.identity not in self._links:
                        self._links[used.identity] = self._attach(used)
        for identity in [one for one, used_at in self._used_at.items() if used_at < now - KEPT]:
            self._detach(identity)

    def close(self) -> None:
        """Takes all probes off."""
        for identity in list(self._links):
            self._detach(identity)

    def _attach(self, used: UsedFile) -> Link | None:
        """None where it does not work; it is not tried again, since the file will not change."""
        logger, path = self._context.logger, used.mapping.path
        try:
            with open_located(used.file) as fd:
                places = find_places(fd, PROBES[used.library], at_any_cost=self._at_any_cost)
                if places.too_dear:
                    logger.warning("Not probed in %s, since each call would take 10 us: %s", path, places.too_dear)
                if not places.probed:
                    return None
                link = attach(self._bpf, self._mode, f"/proc/self/fd/{fd}", places.probed)
        except (OSError, UnreadableElf) as error:
            logger.warning("Cannot probe %s: %s", path, error)
            return None
        logger.info("Probing %d functions of %s", len(places.probed), path)
        return link

    def _detach(self, identity: FileIdentity) -> None:
        self._used_at.pop(identity, None)
        if link := self._links.pop(identity):
            link.close()
