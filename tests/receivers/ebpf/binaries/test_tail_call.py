"""The jump of a function that only passes a member to another function is found, and nothing else."""

import pytest

from otel_zernel_receivers.ebpf.binaries.prologue import Machine
from otel_zernel_receivers.ebpf.binaries.tail_call import LOOKAHEAD, tail_call
from tests.receivers.ebpf.symbols.kept import Kept, symbols
from tests.receivers.ebpf.symbols.rebuilt import MACHINES

EXITS = [one for one in symbols("torch") if "record_function_exit_new" in one.name]
X86, ARM = Machine.X86_64, Machine.AARCH64


@pytest.mark.parametrize("exit_function", EXITS, ids=lambda one: f"{one.version}-{one.arch}")
def test_the_jump_is_found_in_every_release(exit_function: Kept) -> None:
    code = bytes.fromhex(exit_function.code)
    machine = MACHINES[exit_function.arch]
    assert tail_call(machine, code[:LOOKAHEAD]) == {X86: 7, ARM: 8}[machine]


@pytest.mark.parametrize(
    ("machine", "code"),
    [
        (X86, "488b3f4883c710e8b4a9d7fb"),  # call instead of jmp
        (X86, "488b374883c710e9b4a9d7fb"),  # another register
        (X86, "554889e5488b3f4883c710e9"),  # more before it
        (ARM, "000040f90040009142befa96"),  # bl instead of b
        (ARM, "010040f90040009142befa16"),  # another register
        (ARM, "000040f900400091fd7bbea9"),  # no jump
        (X86, "488b3f4883c710"),
        (ARM, ""),
    ],
)
def test_a_function_that_does_more_has_no_such_jump(machine: Machine, code: str) -> None:
    assert tail_call(machine, bytes.fromhex(code)) is None
