"""The collectives of a process that have begun and have not ended, as the kernel's programs know them.

Those of gloo are open until they finish. Those of NCCL are open until the host has next waited for the GPU.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from otel_zernel.otlp.points import LARGEST_INTEGER
from otel_zernel_libraries.training.stacks import GLOO, MOST_COLLECTIVES, OpenCollective
from otel_zernel_receivers.ebpf.emit.event_spans import communicator_name
from otel_zernel_receivers.ebpf.hangs.gloo_works import Work
from otel_zernel_receivers.ebpf.kernel.kernel_structs import (
    ADDRESS,
    COLLECTIVE,
    COMMUNICATOR,
    NUMBER,
    OPEN_WORK,
    PENDING_COLLECTIVES,
    CollectiveState,
)
from otel_zernel_receivers.ebpf.kernel.libbpf import Map
from otel_zernel_receivers.ebpf.probes.calls import COLLECTIVES
from otel_zernel_receivers.ebpf.tables.process_table import ProcessRows, WatchedProcess

_OPERATIONS: Final = {
    **dict.fromkeys((0,), "broadcast"),
    **dict.fromkeys((1, 2, 18), "all_reduce"),
    **dict.fromkeys((3,), "reduce"),
    **dict.fromkeys((4, 5, 6), "all_gather"),
    **dict.fromkeys((7,), "gather"),
    **dict.fromkeys((8,), "scatter"),
    **dict.fromkeys((9, 16), "reduce_scatter"),
    **dict.fromkeys((10, 11), "all_to_all"),
    **dict.fromkeys((12,), "send"),
    **dict.fromkeys((13, 14), "receive"),
    **dict.fromkeys((15,), "barrier"),
}
"""`c10d::OpType`, with its variants for several tensors or for one."""
_NUMBERED: Final = 1 << 31
"""As in bpf/distributed.bpf.h: the other bits of `numbered_ranks` are the ranks of the largest group."""


def gloo_collective(work: Work, world: int, *, thread: int, seconds: float) -> OpenCollective:
    """A collective of gloo in a job of `world` ranks; 0 if they are not known.

    Only the largest group has a name and numbers. Several smaller ones may have as many ranks as each other.
    """
    is_world = work.ranks == world > 0
    return OpenCollective(
        operation=_OPERATIONS.get(work.operation, "unknown"),
        communicator=f"{GLOO} {work.ranks} ranks" if is_world else "",
        sequence=work.sequence if is_world else 0,
        thread=thread,
        seconds=seconds,
    )


class OpenCollectives:
    """The open collectives of all processes. One thread at a time may use it."""

    def __init__(self, maps: Mapping[str, Map], rows: ProcessRows) -> None:
        self._works, self._pending, self._communicators = (
            maps[name] for name in ("open_works", "collectives", "communicators")
        )
        self._rows = rows

    def of(self, process: WatchedProcess, now_ns: int) -> tuple[OpenCollective, ...]:
        """Those of a process with a row, the oldest first. `now_ns` is the time by CLOCK_MONOTONIC."""
        collectives = sorted(
            (*self._of_gloo(process, now_ns), *self._of_nccl(process, now_ns)), key=_seconds, reverse=True
        )
        return tuple(collectives[:MOST_COLLECTIVES])

    def _of_gloo(self, process: WatchedProcess, now_ns: int) -> Iterator[OpenCollective]:
        row = self._rows.array[process.row]
        world = int(row["world_size"]) or int(row["numbered_ranks"]) & ~_NUMBERED
        keys, works = self._works.items(ADDRESS, OPEN_WORK)
        of_process = works[(keys["row"] == process.row) & (keys["generation"] == process.generation)]
        for begin, sequence, tid, operation, ranks, _ in of_process.tolist():
            seconds = max(now_ns - begin, 0) / 1e9
            yield gloo_collective(Work(operation, sequence, ranks), world, thread=tid, seconds=seconds)

    def _of_nccl(self, process: WatchedProcess, now_ns: int) -> Iterator[OpenCollective]:
        row = self._rows.array[process.row]
        if row["collectives"] == row["collectives_settled"]:
            return
        first = process.row * PENDING_COLLECTIVES
        for value in map(self._pending.get, map(NUMBER.pack, range(first, first + PENDING_COLLECTIVES))):
            pending = np.frombuffer(value or bytes(COLLECTIVE.itemsize), COLLECTIVE)[0]
            if pending["generation"] == process.generation and pending["state"] == CollectiveState.ENQUEUED:
                operation, _ = COLLECTIVES[int(pending["flags"]) & 0xFF]
                yield OpenCollective(
                    operation=operation,
                    communicator=self._name(process, int(pending["communicator"])),
                    sequence=int(pending["sequence"]),
                    bytes=min(int(pending["bytes"]), LARGEST_INTEGER),
                    thread=int(pending["tid"]),
                    seconds=max(now_ns - int(pending["begin"]), 0) / 1e9,
                )

    def _name(self, process: WatchedProcess, communicator: int) -> str:
        key = np.array((communicator, process.row, process.generation, 0), ADDRESS)
        value = self._communicators.get(key.tobytes())
        return communicator_name(int(np.frombuffer(value, COMMUNICATOR)[0]["id"])) if value else ""


def _seconds(collective: OpenCollective) -> float:
    return collective.seconds
