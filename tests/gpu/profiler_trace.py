"""Counts the CUDA calls in a trace of torch.profiler, which records them with CUPTI."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

BETWEEN = "between the two lines"
"""The name of the counted region. The job is idle at its start and end, so that no call overlaps them."""

_KINDS = {"HtoD": "host_to_device", "DtoH": "device_to_host", "DtoD": "device_to_device", "HtoH": "host_to_host"}
_CALLS = {
    "waits for the GPU": re.compile("(cuda|cu)(Stream|Device|Event|Ctx)Synchronize|cudaMemcpy"),
    "allocations": re.compile("cudaMalloc(Async|Managed)?|cuMemCreate"),
    "frees": re.compile("cudaFree(Async)?|cuMemRelease"),
}

Event = dict[str, Any]


def count(events: Iterable[Event]) -> Counter[str]:
    """The actions in the region, with the names of quantities.py."""
    inside = list(_inside(list(events)))
    return _launches(inside) + _copies(inside) + _calls(inside)


def _inside(events: list[Event]) -> Iterable[Event]:
    (region,) = (event for event in events if event.get("cat") == "user_annotation" and event["name"] == BETWEEN)
    since, until = region["ts"], region["ts"] + region["dur"]
    return (event for event in events if event.get("ph") == "X" and since < event["ts"] < until)


def _launches(events: list[Event]) -> Counter[str]:
    """Kernels have the correlation id of the call that launched them. All kernels of a graph are one launch."""
    return Counter(
        {"launches": len({event["args"]["correlation"] for event in events if event.get("cat") == "kernel"})}
    )


def _copies(events: list[Event]) -> Counter[str]:
    did: Counter[str] = Counter()
    for one in (event for event in events if event.get("cat") == "gpu_memcpy"):
        short = one["name"].split()[1]  # Memcpy HtoD (Pageable -> Device)
        kind = _KINDS.get(short, short)
        did[f"copies, {kind}"] += 1
        did[f"bytes of copies, {kind}"] += one["args"]["bytes"]
    return did


def _calls(events: list[Event]) -> Counter[str]:
    names = [event["name"] for event in events if event.get("cat") in ("cuda_runtime", "cuda_driver")]
    return Counter({quantity: sum(bool(calls.fullmatch(name)) for name in names) for quantity, calls in _CALLS.items()})
