"""One program: compiled, attached, and its tables.

BCC makes the type of a tracepoint's arguments from a file of the kernel.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from otel_zernel_receivers.bcc.child.problems import ChildProblem, reported_as
from otel_zernel_receivers.bcc.child.system import TRACING
from otel_zernel_receivers.bcc.child.tables import BpfTable
from otel_zernel_receivers.bcc.child.usdt import StaticProbe, attach

_OTHER_ROOT = re.compile(r"/proc/\d+/root(?=/)")
_MOST_LINKS = 40
"""MAXSYMLINKS of Linux."""


def real_path(path: str) -> str:
    """The path without symbolic links. `/proc/PID/root`, the root of another container, stays in front.

    To `os.path.realpath` it is a link to `/`: the result would be a file of the collector's own container.
    Raises `OSError`.
    """
    match = _OTHER_ROOT.match(path)
    if match is None:
        return os.path.realpath(path)
    root = match[0]
    try:
        Path(root).stat()
    except PermissionError as error:
        raise PermissionError(f"{root} cannot be read; grant the collector the capability CAP_SYS_PTRACE") from error
    return real_path_below(root, path[match.end() :])


def real_path_below(root: str, path: str) -> str:
    """The path without symbolic links, where `/` is `root`. Raises `OSError` if it has too many."""
    left, folders, links = path.split("/")[::-1], [root], 0
    while left:
        name = left.pop()
        here = Path(*folders, name)
        if name in ("", "."):
            continue
        if name == "..":
            folders = folders[:-1] or [root]
        elif not here.is_symlink():
            folders.append(name)
        elif links == _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), root + path)
        else:
            links += 1
            target = str(here.readlink())
            folders = [root] if target.startswith("/") else folders
            left += target.split("/")[::-1]
    return "/".join(folders)


_HARDWARE, _SOFTWARE = 0, 1
_NAMES = {
    _SOFTWARE: (
        *("cpu_clock", "task_clock", "page_faults", "context_switches", "cpu_migrations"),
        *("minor_faults", "major_faults"),
    ),
    _HARDWARE: (
        *("cpu_cycles", "instructions", "cache_references", "cache_misses"),
        *("branch_instructions", "branch_misses"),
    ),
}
PERF_EVENTS = {name: (kind, number) for kind, names in _NAMES.items() for number, name in enumerate(names)}
"""Type and number of each event in linux/perf_event.h."""


def attach_one(bpf: Any, entry: Mapping[str, Any], probe: StaticProbe | None) -> None:
    """Attaches one entry of `attach`, whose static probe is given if it has one. Raises what BCC and Linux raise."""
    if probe is not None:
        attach(bpf.load_func(entry["function"].encode(), bpf.KPROBE).fd, probe, entry["pid"] or -1)
    else:
        _KINDS[entry["kind"]](bpf, entry)


def _uprobe(bpf: Any, entry: Mapping[str, Any]) -> None:
    bpf.attach_uprobe(**_in_file(entry), sym_off=entry["offset"])


def _uretprobe(bpf: Any, entry: Mapping[str, Any]) -> None:
    bpf.attach_uretprobe(**_in_file(entry))


def _in_file(entry: Mapping[str, Any]) -> dict[str, Any]:
    path = entry["path"]
    name = real_path(path) if path.startswith("/") else path  # BCC finds a library by its bare name
    return {"name": name, "sym": entry["symbol"], "fn_name": entry["function"], "pid": entry["pid"] or -1}


def _kprobe(bpf: Any, entry: Mapping[str, Any]) -> None:
    bpf.attach_kprobe(event=entry["symbol"], fn_name=entry["function"])


def _kretprobe(bpf: Any, entry: Mapping[str, Any]) -> None:
    bpf.attach_kretprobe(event=entry["symbol"], fn_name=entry["function"])


def _tracepoint(bpf: Any, entry: Mapping[str, Any]) -> None:
    bpf.attach_tracepoint(tp=entry["event"], fn_name=entry["function"])


def _raw_tracepoint(bpf: Any, entry: Mapping[str, Any]) -> None:
    bpf.attach_raw_tracepoint(tp=entry["event"], fn_name=entry["function"])


def _perf_event(bpf: Any, entry: Mapping[str, Any]) -> None:
    kind, number = PERF_EVENTS[entry["event"]]
    every = {"sample_period": entry["period"] or 0, "sample_freq": entry["frequency"] or 0}
    bpf.attach_perf_event(ev_type=kind, ev_config=number, fn_name=entry["function"], pid=entry["pid"] or -1, **every)


_KINDS: dict[str, Callable[[Any, Mapping[str, Any]], None]] = {
    "uprobe": _uprobe,
    "uretprobe": _uretprobe,
    "kprobe": _kprobe,
    "kretprobe": _kretprobe,
    "tracepoint": _tracepoint,
    "raw_tracepoint": _raw_tracepoint,
    "perf_event": _perf_event,
}


_PROBE = re.compile(r"\bTRACEPOINT_PROBE\(\s*(\w+)\s*,\s*(\w+)\s*\)")


def check_tracepoints(source: str, place: str) -> None:
    """Raises `ChildProblem` for the first whose file this process may not read: BCC would compile without its type."""
    for category, name in _PROBE.findall(source):
        if _denied(Path(category, name, "format")):
            raise ChildProblem(f"{category}:{name}", "tracepoint", place)


def _denied(path: Path) -> bool:
    """Whether the file exists where this process may not go, and nowhere else."""
    denied = False
    for folder in TRACING:
        try:
            with Path(folder, "events", path).open("rb"):
                return False
        except PermissionError:
            denied = True
        except OSError:
            continue
    return denied


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
    for number, to_attach in enumerate(entry["attach"]):
        if to_attach["kind"] == "usdt":
            with _collected(problems), reported_as("attach", f"{place}::attach::{number}"):
                probes[number] = StaticProbe(real_path(to_attach["path"]), to_attach["probe"], to_attach["function"])
    try:
        check_tracepoints(entry["source"], place)
        bpf = _compiled(entry, [*flags, *entry["cflags"]], "".join(probe.readers for probe in probes.values()), place)
    except ChildProblem as problem:
        problems.append(problem)
        return []
    for number, to_attach in enumerate(entry["attach"]):
        if to_attach["kind"] != "usdt" or number in probes:
            with _collected(problems), _attached(f"{place}::attach::{number}"):
                attach_one(bpf, to_attach, probes.get(number))
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
