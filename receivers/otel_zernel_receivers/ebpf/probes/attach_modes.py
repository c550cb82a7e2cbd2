"""Attaches programs to functions in the best mode that the kernel supports.

A session is one program for entry and return, and costs least. uprobe.multi needs two programs. Perf links need two
system calls per function, and are slow to detach.
"""

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum

from otel_zernel_receivers.ebpf.kernel.libbpf import AttachType, Link, Object, attach_many
from otel_zernel_receivers.ebpf.kernel.versions import CHEAPEST, RUNNING, UNPRIVILEGED, Version
from otel_zernel_receivers.ebpf.probes.catalogue import Probe


class Mode(StrEnum):
    """The attach modes, best first."""

    SESSION = "session"
    MULTI = "multi"
    PERF = "perf"


NEEDED: Mapping[Mode, Version] = {Mode.SESSION: CHEAPEST, Mode.MULTI: UNPRIVILEGED, Mode.PERF: (0,)}
"""The Linux version that each mode needs, beside what all of them need."""


def too_old_for(mode: Mode) -> str | None:
    """`needs Linux 6.13; this is 6.1.0-13-amd64`; None if this kernel is new enough."""
    if NEEDED[mode] <= RUNNING:
        return None
    return f"needs Linux {'.'.join(map(str, NEEDED[mode]))}; this is {platform.release()}"


TRACEPOINTS = (
    *("process_fork", "process_exit", "process_exec"),
    *("sched_switch", "sched_switch_old", "system_call_exit", "pages_mapped"),
)
"""The programs that attach to the tracepoint which their section names."""


SAMPLER = "sample"
"""The program that attaches to a clock."""


@dataclass(frozen=True, slots=True)
class AttachPoint:
    """A probe, and the file offset (bytes) to attach it to."""

    probe: Probe
    offset: int
    semaphore: int = 0
    """The file offset of a counter that the kernel raises meanwhile, in each process; 0 if there is none."""


def prepare(bpf: Object, mode: Mode) -> None:
    """Prepares the programs for an attach mode. Call it before loading."""
    for name in bpf.programs.keys() - {*TRACEPOINTS, SAMPLER} if mode is not Mode.PERF else ():
        bpf.programs[name].prepare(AttachType.SESSION if mode is Mode.SESSION else AttachType.MULTI)


def attach_tracepoints(bpf: Object) -> Link:
    """Attaches the programs that watch processes fork and end, threads leave the CPU, and system calls read."""
    return _together(bpf.programs[name].attach() for name in TRACEPOINTS if name in bpf.programs)


def attach(bpf: Object, mode: Mode, path: str, places: Sequence[AttachPoint], program: str = "probe") -> Link:
    """Attaches to functions of one file, for every process that maps it. Raises BpfError and then attaches nothing.

    `program` is the beginning of the programs' names: `probe`, or `empty` for benchmarks.
    """
    return _together(_ATTACH[mode](bpf, program, path, places))


def descriptor_count(mode: Mode, places: Sequence[AttachPoint]) -> int:
    """The number of open files that `attach` needs."""
    returning = sum(place.probe.has_return for place in places)
    if mode is Mode.PERF:
        return len(places) + returning
    return 1 + bool(returning) if mode is Mode.MULTI else 1


def _together(links: Iterable[Link]) -> Link:
    """Combines links into one. If creating one of them fails, all others are closed."""
    with ExitStack() as stack:
        for link in links:
            stack.callback(link.close)
        return Link(stack.pop_all().close)


def _attach_session(bpf: Object, program: str, path: str, places: Sequence[AttachPoint]) -> Iterator[Link]:
    yield attach_many(bpf.programs[program], AttachType.SESSION, path, *_columns(places))


# Return probes are attached first and detached last. A return without an entry is recognized, but an entry without a
# return would leave its frame open.


def _attach_multi(bpf: Object, program: str, path: str, places: Sequence[AttachPoint]) -> Iterator[Link]:
    returning = [place for place in places if place.probe.has_return]
    if returning:
        at_return = bpf.programs[f"{program}_return"]
        yield attach_many(at_return, AttachType.MULTI, path, *_columns(returning), at_return=True)
    yield attach_many(bpf.programs[f"{program}_entry"], AttachType.MULTI, path, *_columns(places))


def _attach_perf(bpf: Object, program: str, path: str, places: Sequence[AttachPoint]) -> Iterator[Link]:
    ends = (True, bpf.programs[f"{program}_return"]), (False, bpf.programs[f"{program}_entry"])
    for place in reversed(places):  # detaching takes 0.1 s each, and starts with the last one attached
        for at_return, end in ends:
            if place.probe.has_return or not at_return:
                yield end.attach_perf(path, place.offset, place.probe.cookie, place.semaphore, at_return=at_return)


def _columns(places: Sequence[AttachPoint]) -> tuple[list[int], list[int], list[int]]:
    """The offsets, the cookies and the semaphores."""
    offsets, cookies = [place.offset for place in places], [place.probe.cookie for place in places]
    return offsets, cookies, [place.semaphore for place in places]


_ATTACH = {Mode.SESSION: _attach_session, Mode.MULTI: _attach_multi, Mode.PERF: _attach_perf}
