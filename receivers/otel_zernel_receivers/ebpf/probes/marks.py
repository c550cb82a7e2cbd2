"""Marks of PyTorch: the functions that phases are made of, by the phases that would be unknown without them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

from otel_zernel_receivers.ebpf.probes.calls import CallKind
from otel_zernel_receivers.ebpf.probes.catalogue import Probe


class Mark(StrEnum):
    """A part of phases that a library may lack; `zernel.mark` of docs/spans.md."""

    SCOPES = "scopes"
    BACKWARD = "backward"
    COLLECTIVE_WAIT = "collective_wait"
    DDP_WAIT = "ddp_wait"


_KINDS = {
    Mark.SCOPES: (CallKind.SCOPE_BEGIN, CallKind.SCOPE_END),
    Mark.BACKWARD: (CallKind.BACKWARD,),
    Mark.COLLECTIVE_WAIT: (CallKind.WORK_WAIT, CallKind.WORK_WAIT_END),
    Mark.DDP_WAIT: (CallKind.REDUCER,),
}
"""Each kind is needed, at one function or more."""
UNSEEN = {
    Mark.SCOPES: "data loading, the optimizer and therefore steps are not seen",
    Mark.BACKWARD: "backward passes are not seen",
    Mark.COLLECTIVE_WAIT: "waits of torch.distributed are not seen",
    Mark.DDP_WAIT: "waits of DistributedDataParallel are not seen",
}


def missing_marks(probes: Sequence[Probe], found: Iterable[Probe]) -> dict[Mark, str]:
    """The marks that a file should have by its catalogue `probes` and lacks, each with the functions that it lacks."""
    present = {probe.kind for probe in found}
    lacking = {mark: _functions(probes, set(kinds) - present) for mark, kinds in _KINDS.items()}
    return {mark: text for mark, text in lacking.items() if text}


def sentence(name: str, missing: Mapping[Mark, str], is_stripped: bool) -> str:
    """Says which functions the library `name` lacks, and which part of phases is not seen."""
    functions = ", ".join(dict.fromkeys(missing.values()))
    reason = " (its symbol table was stripped)" if is_stripped and Mark.BACKWARD in missing else ""
    return f"{name} lacks {functions}{reason}: {'; '.join(UNSEEN[mark] for mark in missing)}"


def _functions(probes: Sequence[Probe], kinds: Collection[CallKind]) -> str:
    """If a function is not there, its returns are not named too."""
    lacking = [probe for probe in probes if probe.kind in kinds]
    functions = {probe.function for probe in lacking if not probe.is_at_return}
    return ", ".join(probe.target for probe in lacking if not (probe.is_at_return and probe.function in functions))
