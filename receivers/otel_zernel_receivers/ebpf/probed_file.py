"""The probes of one file."""

import os
from collections.abc import Collection, Sequence
from contextlib import ExitStack

from otel_zernel_receivers.ebpf.budget.overhead import Group, group_of
from otel_zernel_receivers.ebpf.kernel.libbpf import Link, Object
from otel_zernel_receivers.ebpf.probes.attach_modes import AttachPoint, Mode, attach, descriptor_count


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
