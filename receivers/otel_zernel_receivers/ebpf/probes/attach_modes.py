"""Attaching programs to functions in the best way the kernel has.

A session is one program for entry and return, and costs least; uprobe.multi takes two; perf links take two system calls
per function and are slow to attach.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum

from otel_zernel_receivers.ebpf.kernel.libbpf import Link, Object, attach_multi, attach_session
from otel_zernel_receivers.ebpf.probes.catalogue import Probe


class Mode(StrEnum):
    """Ways to attach, best first."""

    SESSION = "session"
    MULTI = "multi"
    PERF = "perf"


TRACEPOINTS = ("process_exit", "process_exec", "sched_switch", "sched_switch_old", "system_call_exit")
"""Programs whose section names the tracepoint that they attach to."""


@dataclass(frozen=True, slots=True)
class AttachPoint:
    """A probe and where its function is in a file."""

    probe: Probe
    offset: int


def prepare(bpf: Object, mode: Mode) -> None:
    """Readies the programs for the way they will be attached; before loading."""
    for program in bpf.programs.values():
        if program.name in TRACEPOINTS or mode is Mode.PERF:
            continue
        if mode is Mode.SESSION:
            program.prepare_session()
        else:
            program.prepare_multi()


def attach_tracepoints(bpf: Object) -> Link:
    """Attaches what watches processes and threads come and go."""
    return _together(bpf.programs[name].attach() for name in TRACEPOINTS if name in bpf.programs)


def attach(bpf: Object, mode: Mode, path: str, places: Sequence[AttachPoint], program: str = "probe") -> Link:
    """Attaches to functions of one file, for every process that maps it. Raises BpfError; then nothing is attached."""
    return _together(_ATTACH[mode](bpf, program, path, places))


def _together(links: Iterable[Link]) -> Link:
    """One link of all, or none of them."""
    with ExitStack() as stack:
        for link in links:
            stack.callback(link.close)
        return Link(stack.pop_all().close)


def _attach_session(bpf: Object, program: str, path: str, places: Sequence[AttachPoint]) -> Iterator[Link]:
    yield attach_session(bpf.programs[program], path, *_offsets_and_cookies(places))


# Returns are attached first and detached last: a return without an entry is noticed, an entry without a return stays
# open.


def _attach_multi(bpf: Object, program: str, path: str, places: Sequence[AttachPoint]) -> Iterator[Link]:
    returning = [place for place in places if place.probe.has_return]
    if returning:
        yield attach_multi(bpf.programs[f"{program}_return"], path, *_offsets_and_cookies(returning), at_return=True)
    yield attach_multi(bpf.programs[f"{program}_entry"], path, *_offsets_and_cookies(places), at_return=False)


def _attach_perf(bpf: Object, program: str, path: str, places: Sequence[AttachPoint]) -> Iterator[Link]:
    ends = (True, bpf.programs[f"{program}_return"]), (False, bpf.programs[f"{program}_entry"])
    for place in reversed(places):  # detaching takes 0.1 s each: the best known functions come first
        for at_return, end in ends:
            if place.probe.has_return or not at_return:
                yield end.attach_perf(path, place.offset, place.probe.cookie, at_return=at_return)


def _offsets_and_cookies(places: Sequence[AttachPoint]) -> tuple[list[int], list[int]]:
    return [place.offset for place in places], [place.probe.cookie for place in places]


_ATTACH = {Mode.SESSION: _attach_session, Mode.MULTI: _attach_multi, Mode.PERF: _attach_perf}
