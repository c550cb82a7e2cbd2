"""Runs of model operators, read from their events."""

import struct
from typing import Any

from numpy.typing import NDArray

from otel_zernel_libraries.training.interval_spans import Evidence, OperatorsSpan
from otel_zernel_receivers.ebpf.kernel.kernel_structs import RUN_FACTS, UNKNOWN_BYTES, Interval, RunEnding

_FACTS = struct.Struct("<QQQQQIIIIHHI")
assert _FACTS.size == RUN_FACTS.itemsize  # noqa: S101  # a mistake in this file
_EDGES = struct.Struct("<32H")
_ENDINGS = {RunEnding.AT_OPERATOR: "operator", RunEnding.AT_REGION: "region", RunEnding.AT_NEXT_RUN: "next"}


def run_of(
    facts: bytes,
    thread: int,
    phase: str,
    tail: tuple[int, int, int] = (0, 0, 0),
    edges: bytes | None = None,
    *,
    knows_blocked: bool = True,
) -> OperatorsSpan:
    """The span of a run without its times, from the `name` of its event (`kernel_structs.RUN_FACTS`).

    `tail` is the time off the CPU (ns), the page faults and the bytes read after the last operator. `edges` are the
    beginnings and ends of the parts, from an event of its own. `knows_blocked` is False on kernels where time off the
    CPU is not counted.
    """
    values = _FACTS.unpack(facts.ljust(_FACTS.size, b"\0"))
    blocked, faults, read, copies, covered, count, parts, is_without_grad, is_update, has_gap, on_files, ending = values
    kind_of_faults = "file_faults" if on_files else "faults"
    tail_blocked, tail_faults, tail_read = tail
    gap = Evidence(
        blocked_ns=blocked if knows_blocked else None,
        read=None if read == UNKNOWN_BYTES else read,
        copies=copies,
        **{kind_of_faults: faults},
    )
    return OperatorsSpan(
        thread=thread,
        start_ns=0,
        end_ns=0,
        phase=phase,
        count=count,
        is_update=bool(is_update),
        ending=_ENDINGS[RunEnding(ending)],
        grad=not is_without_grad,
        parts=max(parts, 1),
        covered_ns=covered if parts > 1 else 0,
        edges_us=_EDGES.unpack(edges.ljust(_EDGES.size, b"\0"))[: 2 * parts] if edges and parts > 1 else (),
        gap=gap if has_gap else Evidence(),
        tail=Evidence(
            blocked_ns=(tail_blocked or None) if knows_blocked else None,
            read=tail_read or None,
            **{kind_of_faults: tail_faults or None},
        ),
    )


def parts_of_runs(events: NDArray[Any]) -> dict[tuple[int, int], bytes]:
    """The events with the edges of parts: their content by the thread and the beginning (ns) of the run."""
    found = events[(events["interval"] == Interval.OPERATORS) & (events["operation"] == 1)]
    keys = zip(found["tid"].tolist(), found["begin"].tolist(), strict=True)
    return dict(zip(keys, found["name"].tolist(), strict=True))
