"""Attaches the functions of a program, each kind by BCC's own call where that does all that is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from otel_zernel_receivers.bcc.child.paths import real_path
from otel_zernel_receivers.bcc.child.usdt import StaticProbe, attach

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
