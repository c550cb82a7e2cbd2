"""The attributes of runs of model operators; docs/spans.md is the contract."""

import struct
from typing import Any

from numpy.typing import NDArray

from otel_zernel_receivers.ebpf.kernel.kernel_structs import RUN_FACTS, UNKNOWN_BYTES, Interval, RunEnding

_FACTS = struct.Struct("<QQQQQIIIIHHI")
assert _FACTS.size == RUN_FACTS.itemsize  # noqa: S101  # a mistake in this file
_EDGES = struct.Struct("<32H")
_ENDINGS = {RunEnding.AT_OPERATOR: "operator", RunEnding.AT_REGION: "region", RunEnding.AT_NEXT_RUN: "next"}

Attributes = dict[str, str | int | float | bool]


def attributes_of_run(
    facts: bytes, tail: tuple[int, int, int] = (0, 0, 0), edges: bytes | None = None, *, knows_blocked: bool = True
) -> Attributes:
    """The attributes of a run, from the `name` of its event (`kernel_structs.RUN_FACTS`).

    `tail` is the time off the CPU (ns), the page faults and the bytes read after the last operator. `edges` are the
    beginnings and ends of the parts, from an event of its own. `knows_blocked` is False on kernels where time off the
    CPU is not counted.
    """
    values = _FACTS.unpack(facts.ljust(_FACTS.size, b"\0"))
    blocked, faults, read, copies, covered, count, parts, is_without_grad, is_update, has_gap, on_files, ending = values
    kind_of_faults = "file.faults" if on_files else "faults"
    attributes: Attributes = {
        "zernel.operators.count": count,
        "zernel.operators.kind": "update" if is_update else "model",
        "zernel.operators.end": _ENDINGS[RunEnding(ending)],
        "zernel.grad": not is_without_grad,
    }
    if parts > 1:
        attributes |= {"zernel.operators.parts": parts, "zernel.operators.time": covered / 1e9}
        if edges:
            times = _EDGES.unpack(edges.ljust(_EDGES.size, b"\0"))[: 2 * parts]
            attributes["zernel.operators.edges"] = " ".join(map(str, times))
    if has_gap:
        attributes |= {f"zernel.gap.{kind_of_faults}": faults, "zernel.gap.copies": copies}
        if knows_blocked:
            attributes["zernel.gap.blocked"] = blocked / 1e9
        if read != UNKNOWN_BYTES:
            attributes["zernel.gap.read"] = read
    for name, value in zip((kind_of_faults, "read"), tail[1:], strict=True):
        if value:
            attributes[f"zernel.tail.{name}"] = value
    if tail[0] and knows_blocked:
        attributes["zernel.tail.blocked"] = tail[0] / 1e9
    return attributes


def parts_of_runs(events: NDArray[Any]) -> dict[tuple[int, int], bytes]:
    """The events with the edges of parts: their content by the thread and the beginning (ns) of the run."""
    found = events[(events["interval"] == Interval.OPERATORS) & (events["operation"] == 1)]
    keys = zip(found["tid"].tolist(), found["begin"].tolist(), strict=True)
    return dict(zip(keys, found["name"].tolist(), strict=True))
