"""The beginnings of instructions agree with binutils, for code of a compiler."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_zernel_receivers.ebpf.binaries.instructions import starts
from tests.receivers.ebpf.standin import Standin

_LINE = re.compile(r"^\s*([0-9a-f]+):\t([0-9a-f ]+?)\s*(?:\t(\S+).*)?$", re.MULTILINE)


def functions(file: Path) -> Iterator[tuple[bytes, list[int]]]:
    """The code of each function of a file, and the offsets of its instructions, by objdump."""
    command = ["objdump", "-d", "--wide", "--insn-width=15", str(file)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for block in text.split("\n\n"):
        lines = _LINE.findall(block)
        if lines:
            first = int(lines[0][0], 16)
            yield bytes.fromhex("".join(code for _, code, _ in lines)), [int(at, 16) - first for at, *_ in lines]


@pytest.mark.parametrize("name", ["program", "libcudart.so.12", "libtorch_cpu.so"])
def test_the_beginnings_of_instructions_agree_with_binutils(standin: Standin, name: str) -> None:
    if not shutil.which("objdump"):
        pytest.skip("objdump (binutils) is not installed")
    walked = 0
    for code, expected in functions(standin.folder / name):
        found = list(starts(code))
        assert found == expected[: len(found)], code.hex()
        walked += len(found)
    assert walked > 50


@pytest.mark.parametrize("code", ["", "c4", "0f38", "62", "66", "f6", "0f", "b8 01 00"])
def test_a_walk_ends_at_an_unsupported_or_incomplete_instruction(code: str) -> None:
    assert list(starts(bytes.fromhex(code))) == ([0] if code else [])
