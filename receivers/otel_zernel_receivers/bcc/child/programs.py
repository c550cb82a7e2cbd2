"""One program: compiled, attached, and its tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from otel_zernel_receivers.bcc.child.attaching import attach_one
from otel_zernel_receivers.bcc.child.paths import real_path
from otel_zernel_receivers.bcc.child.problems import ChildProblem, reported_as
from otel_zernel_receivers.bcc.child.tables import BpfTable
from otel_zernel_receivers.bcc.child.tracepoints import check_tracepoints
from otel_zernel_receivers.bcc.child.usdt import StaticProbe

_MAIN = "/virtual/main.c"
"""BCC's name for a source that is text."""
_CONTEXT = 2
"""Lines below an error that the compiler prints for it: the source, and a mark."""
_REFUSED = "bpf: Failed to load program:"
"""BCC writes it before the reason and the verifier's log."""
_LAST_LINES, _LONGEST_LINE = 12, 200
"""Of the verifier's log in a message."""
_PART = 1 << 19
"""Bytes at the beginning and at the end of a longer log that are read: a verifier's may have 16 MiB."""


def load(entry: Mapping[str, Any], flags: Sequence[str], problems: list[ChildProblem]) -> list[BpfTable]:
    """Compiles and attaches a program. Returns the tables that the metrics use.

    Adds every problem to the list. A program whose source does not compile has just that one.
    """
    place = f"programs::{entry['name']}"
    probes: dict[int, StaticProbe] = {}
    for number, one in enumerate(entry["attach"]):
        if one["kind"] == "usdt":
            with _collected(problems), reported_as("attach", f"{place}::attach::{number}"):
                probes[number] = StaticProbe(real_path(one["path"]), one["probe"], one["function"])
    try:
        check_tracepoints(entry["source"], place)
        bpf = _compiled(entry, [*flags, *entry["cflags"]], "".join(probe.readers for probe in probes.values()), place)
    except ChildProblem as problem:
        problems.append(problem)
        return []
    for number, one in enumerate(entry["attach"]):
        if one["kind"] != "usdt" or number in probes:
            with _collected(problems), _attached(f"{place}::attach::{number}"):
                attach_one(bpf, one, probes.get(number))
    return _tables(bpf, entry, place, problems)


def _tables(bpf: Any, entry: Mapping[str, Any], place: str, problems: list[ChildProblem]) -> list[BpfTable]:
    tables = []
    for name, resolved in entry["tables"].items():
        with _collected(problems), reported_as("table", place):
            tables.append(BpfTable(bpf, entry["name"], name, resolved))
    return tables


def _compiled(entry: Mapping[str, Any], flags: Sequence[str], readers: str, place: str) -> Any:
    from bcc import BPF

    text = f'#include <uapi/linux/ptrace.h>\n{readers}#line 1 "{_MAIN}"\n{entry["source"]}'
    with _quiet() as output:
        try:
            return BPF(text=text, cflags=list(flags))
        except Exception as error:  # BCC has no narrower one
            log = output().replace(_MAIN, entry["file"] or "source")
            if _REFUSED in log:  # BCC loads some functions at once, such as those of TRACEPOINT_PROBE
                raise ChildProblem(_verdict(log), "verifier", place) from error
            raise ChildProblem(_errors(log) or str(error), "compile", place) from error


def _errors(log: str) -> str:
    """The compiler's errors with their lines of the source; the end of the log if there are none."""
    lines = log.splitlines()
    wanted = [at for at, line in enumerate(lines) if " error: " in line]
    shown = [line for at in wanted for line in lines[at : at + 1 + _CONTEXT]]
    return "\n".join(shown or lines[-10:])


def _verdict(log: str) -> str:
    """The last lines of what BCC writes when the kernel refuses a program: the reason, and the verifier's log."""
    reason, _, verifier = log.rpartition(_REFUSED)[2].partition("\n")
    lines = [line[:_LONGEST_LINE] for line in verifier.splitlines() if line.strip()]
    return "\n".join([reason.strip(), *lines[-_LAST_LINES:]])


@contextmanager
def _attached(place: str) -> Iterator[None]:
    """Raises a `ChildProblem` for any error, with the verifier's log if the kernel refuses the program."""
    with _quiet() as output:
        try:
            with reported_as("attach", place):
                yield
        except ChildProblem as problem:
            if _REFUSED in (log := output()):
                raise ChildProblem(_verdict(log), "verifier", place) from problem
            raise


@contextmanager
def _collected(problems: list[ChildProblem]) -> Iterator[None]:
    try:
        yield
    except ChildProblem as problem:
        problems.append(problem)


@contextmanager
def _quiet() -> Iterator[Any]:
    """Catches stderr, to which LLVM and libbpf write. Yields a function that returns the text so far."""
    log, before = os.memfd_create("log"), os.dup(2)
    os.dup2(log, 2)
    try:
        yield lambda: _ends_of(log).decode("utf-8", "replace")
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(log)


def _ends_of(log: int) -> bytes:
    return os.pread(log, _PART, 0) + os.pread(log, _PART, max(os.fstat(log).st_size - _PART, _PART))
