"""The Python side and the BPF side agree on the vocabulary of probed calls: probes/calls.py and bpf/kinds.bpf.h."""

import re

import pytest

from otel_zernel_receivers.ebpf.probes.calls import COLLECTIVES, ENTRY_ONLY, HOST_UPPER_BOUND, CallKind, Flag, Operation
from tests.receivers.ebpf.kernel.test_objects import c_enum, sources

ROW = re.compile(r"^\t(WITH_RETURN|KEEPS_ARGUMENTS|ENTRY_ONLY)\((\w+), (\w+(?:, \w+)?)\)", re.MULTILINE)
ROWS = [(form, kind, handlers.split(", ")) for form, kind, handlers in ROW.findall(sources())]
"""The rows of CALL_KINDS: form, kind, and the functions that handle its ends."""


def test_the_rows_of_the_table_number_the_kinds_of_calls() -> None:
    assert [kind for _, kind, _ in ROWS] == [kind.name for kind in CallKind]
    assert list(CallKind) == list(range(len(ROWS)))


def test_the_entry_only_kinds_are_those_of_the_table() -> None:
    assert {kind for form, kind, _ in ROWS if form == "ENTRY_ONLY"} == {kind.name for kind in ENTRY_ONLY}


@pytest.mark.parametrize("handler", sorted({handler for _, _, handlers in ROWS for handler in handlers}))
def test_every_handler_of_the_table_is_defined_once(handler: str) -> None:
    assert len(re.findall(rf"^static __always_inline void {handler}\(", sources(), re.MULTILINE)) == 1


def test_both_sides_give_each_flag_the_same_bit() -> None:
    bits = {name: 1 << int(bit) for name, bit in re.findall(r"#define IS_(\w+) \(1u << (\d+)\)", sources())}
    assert bits == {flag.name: flag.value for flag in Flag}


def test_both_sides_number_the_operations_alike() -> None:
    operations = c_enum("operation")
    upper_bound = operations.pop("UPPER_BOUND")
    assert operations == {name: Operation[name] for name in operations}
    upper_bounds = {number for number, (_, timing) in COLLECTIVES.items() if timing == HOST_UPPER_BOUND}
    assert upper_bounds == {number + upper_bound for number in COLLECTIVES.keys() - upper_bounds}
