"""The numbers of system calls are those that the kernel's programs use."""

import platform
import re
from pathlib import Path

import pytest

from otel_zernel_receivers.ebpf.hangs import system_calls

HEADER = (Path(__file__).parents[4] / "bpf/registers.bpf.h").read_text("utf-8")


@pytest.mark.parametrize(("machine", "part"), [("x86_64", 0), ("aarch64", 1)])
def test_each_number_is_that_of_the_header(machine: str, part: int) -> None:
    common, own = HEADER.split("#if defined(__TARGET_ARCH_x86)", 1)
    text = common + own.split("#elif defined(__TARGET_ARCH_arm64)", 1)[part]
    findall = re.findall(r"#define SYSTEM_CALL_(\w+) (\d+)", text)
    numbers = {name.lower(): int(number) for name, number in findall if int(number) < 1_000}
    own_numbers = system_calls._NUMBERS[machine]
    assert {name: own_numbers[name] for name in numbers if name in own_numbers} == {
        name: number for name, number in numbers.items() if name in own_numbers
    }
    assert numbers.keys() - own_numbers.keys() == {"sched_yield"}


def test_this_machine_is_known() -> None:
    assert platform.machine() in system_calls._NUMBERS
    assert system_calls.NAMES[system_calls.NUMBERS["futex"]] == "futex"
