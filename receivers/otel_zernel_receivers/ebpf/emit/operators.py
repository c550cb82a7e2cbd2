"""The attributes of runs of model operators; docs/spans.md is the contract."""

import struct

from otel_zernel_receivers.ebpf.kernel.kernel_structs import RUN_FACTS, UNKNOWN_BYTES, RunEnding

_FACTS = struct.Struct("<QQQQQIIIIII")
assert _FACTS.size == RUN_FACTS.itemsize  # noqa: S101  # a mistake in this file
_ENDINGS = {RunEnding.AT_OPERATOR: "operator", RunEnding.AT_REGION: "region", RunEnding.AT_NEXT_RUN: "next"}

Attributes = dict[str, str | int | float | bool]


def attributes_of_run(facts: bytes, *, knows_blocked: bool = True) -> Attributes:
    """The attributes of a run, from the `name` of its event (`kernel_structs.RUN_FACTS`).

    `knows_blocked` is False on kernels where time off the CPU is not counted.
    """
    blocked, faults, read, copies, covered, count, parts, is_without_grad, is_update, has_gap, ending = _FACTS.unpack(
        facts.ljust(_FACTS.size, b"\0")
    )
    attributes: Attributes = {
        "zernel.operators.count": count,
        "zernel.operators.kind": "update" if is_update else "model",
        "zernel.operators.end": _ENDINGS[RunEnding(ending)],
        "zernel.grad": not is_without_grad,
    }
    if parts > 1:
        attributes |= {"zernel.operators.parts": parts, "zernel.operators.time": covered / 1e9}
    if has_gap:
        attributes |= {"zernel.gap.faults": faults, "zernel.gap.copies": copies}
        if knows_blocked:
            attributes["zernel.gap.blocked"] = blocked / 1e9
        if read != UNKNOWN_BYTES:
            attributes["zernel.gap.read"] = read
    return attributes
