"""USDT probes are found by their notes, and their arguments where the kernel side can read them."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_receivers.ebpf.binaries.prologue import Machine
from otel_zernel_receivers.ebpf.binaries.usdt import IN_MEMORY, _descriptions, _place, _split, usdt_probes
from otel_zernel_receivers.ebpf.probes.calls import CallKind
from otel_zernel_receivers.ebpf.probes.catalogue import CUPTI
from otel_zernel_receivers.ebpf.probes.libraries import find_attach_points
from tests.receivers.ebpf.standin import Standin

RDI, RBP, SP = 14, 4, 31


@pytest.mark.parametrize(
    ("machine", "argument", "place"),
    [
        (Machine.X86_64, "8@%rdi", RDI),
        (Machine.X86_64, "-4@%edi", RDI),
        (Machine.X86_64, "4@%r9d", 8),
        (Machine.X86_64, "8@(%rbp)", RBP | IN_MEMORY),
        (Machine.X86_64, "8@-40(%rbp)", RBP | IN_MEMORY | (-10 & 0x3FF) << 6),
        (Machine.X86_64, "4@2044(%rbp)", RBP | IN_MEMORY | 511 << 6),
        (Machine.X86_64, "4@2048(%rbp)", None),
        (Machine.X86_64, "4@-41(%rbp)", None),
        (Machine.X86_64, "8@$5", None),
        (Machine.X86_64, "8@value(%rip)", None),
        (Machine.X86_64, "8@(%rax,%rbx,8)", None),
        (Machine.X86_64, "8@%xmm0", None),
        (Machine.X86_64, "2@%di", None),
        (Machine.AARCH64, "8@x0", 0),
        (Machine.AARCH64, "-4@w1", 1),
        (Machine.AARCH64, "8@[sp]", SP | IN_MEMORY),
        (Machine.AARCH64, "8@[sp, 60]", SP | IN_MEMORY | 15 << 6),
        (Machine.AARCH64, "8@[x29, -16]", 29 | IN_MEMORY | (-4 & 0x3FF) << 6),
        (Machine.AARCH64, "8@%rdi", None),
    ],
)
def test_an_argument_has_a_place_or_is_known_to_have_none(machine: Machine, argument: str, place: int | None) -> None:
    assert _place(machine, argument) == place


def test_arguments_with_blanks_in_brackets_are_told_apart() -> None:
    assert _split("4@[sp, 60] 8@x0 -4@%esi") == ["4@[sp, 60]", "8@x0", "-4@%esi"]


@given(st.binary(max_size=400))
def test_no_damaged_notes_do_harm(notes: bytes) -> None:
    assert all(len(description) >= 24 for description in _descriptions(notes))


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_no_note_reaches_beyond_the_section(name_size: int, size: int) -> None:
    notes = struct.pack("<III", name_size, size, 3) + b"stapsdt\0" + bytes(40)
    assert sum(map(len, _descriptions(notes))) <= 40


def probes_of(library: Path) -> dict[str, tuple[int | None, ...]]:
    with library.open("rb") as file:
        return {probe.name: probe.arguments for probe in usdt_probes(file.fileno(), "parcagpu")}


def test_the_probes_of_a_library_are_those_of_its_notes(standin: Standin) -> None:
    assert probes_of(standin.cupti).keys() == {"cuda_correlation", "activity_batch"}
    assert probes_of(standin.old_cupti).keys() == {"cuda_correlation", "kernel_executed"}
    assert probes_of(standin.cudart) == {}
    with standin.cupti.open("rb") as file:
        assert usdt_probes(file.fileno(), "someone_else") == []


@pytest.mark.parametrize(("library", "kind"), [("cupti", CallKind.ACTIVITIES), ("old_cupti", CallKind.KERNEL_RECORD)])
def test_probes_raise_the_counters_of_the_library(standin: Standin, library: str, kind: CallKind) -> None:
    with Path(getattr(standin, library)).open("rb") as file:
        points = find_attach_points(file.fileno(), CUPTI)
    assert {point.probe.kind for point in points.probed} == {kind, CallKind.CORRELATION}
    assert all(point.semaphore for point in points.probed)
