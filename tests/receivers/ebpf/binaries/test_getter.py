"""The field that a function only returns is found, and nothing is found in functions that do more."""

import pytest

from otel_zernel_receivers.ebpf.binaries.getter import returned_field
from otel_zernel_receivers.ebpf.binaries.prologue import Machine

X86, ARM = Machine.X86_64, Machine.AARCH64


@pytest.mark.parametrize(
    ("machine", "code", "offset"),
    [
        (X86, "488b8718010000c30f1f8400", 0x118),  # AsyncWork::getSequencenumber of PyTorch 2.13
        (X86, "488b87e0000000c30f1f8400", 0xE0),  # ... of PyTorch 2.6
        (X86, "0fb6477cc390662e0f1f8400", 0x7C),  # Work::retrieveOpType of both
        (X86, "f30f1efa488b4710c3", 0x10),  # after endbr64
        (ARM, "008c40f9c0035fd6", 0x118),  # ldr x0, [x0, #280]; ret
        (ARM, "5f2403d500f04139c0035fd6", 0x7C),  # bti c; ldrb w0, [x0, #124]; ret
    ],
)
def test_the_field_that_a_function_returns_is_found(machine: Machine, code: str, offset: int) -> None:
    assert returned_field(machine, bytes.fromhex(code)) == offset


@pytest.mark.parametrize(
    ("machine", "code"),
    [
        (X86, "488b87180100004883c001c3"),  # it adds 1
        (X86, "488b8618010000c3"),  # of the second argument
        (X86, "4883ec08488d0d8d"),
        (X86, "488b47f0c3"),  # before the object
        (X86, ""),
        (ARM, "008c40f900040091"),  # add x0, x0, #1 in place of ret
        (ARM, "208c40f9c0035fd6"),  # of x1
        (ARM, "018c40f9c0035fd6"),  # into x1
        (ARM, "008c40f9"),
    ],
)
def test_a_function_that_does_more_has_no_such_field(machine: Machine, code: str) -> None:
    assert returned_field(machine, bytes.fromhex(code)) is None
