"""Marks of PyTorch: groups of functions that phases depend on. Without a mark, some phases are unknown."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

from otel_zernel_receivers.ebpf.probes.calls import CallKind
from otel_zernel_receivers.ebpf.probes.catalogue import Probe


class Mark(StrEnum):
    """A group of functions that a library may lack: the attribute `zernel.mark` in docs/development/spans.md."""

    SCOPES = "scopes"
    BACKWARD = "backward"
    COLLECTIVE_WAIT = "collective_wait"
    DDP_WAIT = "ddp_wait"
    OPERATORS = "operators"
    GRAD_MODE = "grad_mode"


_KINDS = {
    Mark.SCOPES: (CallKind.SCOPE_BEGIN, CallKind.SCOPE_END),
    Mark.BACKWARD: (CallKind.BACKWARD,),
    Mark.COLLECTIVE_WAIT: (CallKind.WORK_WAIT, CallKind.WORK_WAIT_END),
    Mark.DDP_WAIT: (CallKind.REDUCER,),
    Mark.OPERATORS: (CallKind.OPERATOR,),
    Mark.GRAD_MODE: (CallKind.GRAD_MODE,),
}
"""A mark needs at least one function of each of these kinds."""
_GENERATED = "at::_ops::*::call"
"""Stands for all operators in messages."""
CONSEQUENCES = {
    Mark.SCOPES: "data loading, optimizer and steps are not reported",
    Mark.BACKWARD: "backward passes are not reported",
    Mark.COLLECTIVE_WAIT: "waits of torch.distributed are not reported",
    Mark.DDP_WAIT: "waits of DistributedDataParallel are not reported",
    Mark.OPERATORS: "passes of models without a DataLoader are not reported",
    Mark.GRAD_MODE: "passes without gradients are reported as passes with gradients",
}


def missing_marks(probes: Sequence[Probe], located: Iterable[Probe]) -> dict[Mark, str]:
    """The marks in the catalogue `probes` that a file lacks, each with the missing functions."""
    present = {probe.kind for probe in located}
    missing = {mark: _functions(probes, set(kinds) - present) for mark, kinds in _KINDS.items()}
    return {mark: text for mark, text in missing.items() if text}


def sentence(name: str, missing: Mapping[Mark, str], is_stripped: bool) -> str:
    """A sentence with the functions that the library `name` lacks, and the phases that are therefore not reported."""
    functions = ", ".join(dict.fromkeys(missing.values()))
    reason = " (its symbol table was stripped)" if is_stripped and Mark.BACKWARD in missing else ""
    return f"{name} lacks {functions}{reason}: {'; '.join(CONSEQUENCES[mark] for mark in missing)}"


def _functions(probes: Sequence[Probe], kinds: Collection[CallKind]) -> str:
    """The missing functions of these kinds. If a function is missing, its returns are not listed as well."""
    missing = [probe for probe in probes if probe.kind in kinds and not probe.is_optional]
    functions = {probe.function for probe in missing if not probe.is_at_return}
    targets = (probe.target for probe in missing if not (probe.is_at_return and probe.function in functions))
    return ", ".join(dict.fromkeys(_GENERATED if target.startswith("at::_ops::") else target for target in targets))
