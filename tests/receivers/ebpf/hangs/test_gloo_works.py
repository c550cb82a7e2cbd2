"""The collectives of gloo that stacks have the addresses of, in made memory of this process."""

import ctypes
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from otel_zernel_receivers.ebpf.hangs.gloo_works import Work, WorkLayout, works_on

SEQUENCE, OPERATION, COMPLETED, GROUP = 0x118, 0x7C, 0x68, 0xE8
"""Of PyTorch 2.13; the address of the group may be anywhere."""
NEIGHBOR = 0x80
WORK_TYPE, REDUCE_TYPE, REDUCE_TABLE, CONTEXT_TYPE, TCP_TYPE, TCP_TABLE, CONTEXT, WORK, OTHER = range(
    0x100, 0x1300, 0x200
)
"""Offsets in the memory."""


class Memory:
    """An unfinished reduction, number 17 of a group of 4 ranks, and the types of both."""

    def __init__(self) -> None:
        self._bytes = ctypes.create_string_buffer(0x2000)
        self.start = (ctypes.addressof(self._bytes) + 15) & ~15
        self.layout = WorkLayout(self.start + WORK_TYPE, self.start + CONTEXT_TYPE, SEQUENCE, OPERATION)
        for place, target in (
            (REDUCE_TYPE + 16, WORK_TYPE),  # it derives from it
            (REDUCE_TABLE - 8, REDUCE_TYPE),
            (TCP_TYPE + 16, CONTEXT_TYPE),
            (TCP_TABLE - 8, TCP_TYPE),
            (CONTEXT, TCP_TABLE),
            (WORK, REDUCE_TABLE),
            (WORK + GROUP, CONTEXT),
        ):
            self.put(place, "Q", self.start + target)
        self.put(CONTEXT + 8, "2i", 1, 4)
        self.put(WORK + SEQUENCE, "Q", 17)
        self.put(WORK + OPERATION, "B", 1)

    def put(self, place: int, form: str, *values: int) -> None:
        ctypes.memmove(self.start + place, struct.pack(f"<{form}", *values), struct.calcsize(f"<{form}"))

    def works(self, *places: int) -> list[Work]:
        """Those on a stack with the addresses of these places among others."""
        words = np.array([0, 7, 2**64 - 8, 4096, *(self.start + place for place in places)], "<u8")
        return works_on(os.getpid(), self.layout, words, Path("/proc/self/maps").read_bytes())


@pytest.fixture
def memory() -> Memory:
    return Memory()


def test_an_unfinished_collective_is_found_with_its_number_and_its_group(memory: Memory) -> None:
    assert memory.works(OTHER, WORK, WORK) == [Work(operation=1, sequence=17, ranks=4)]


def test_the_group_is_the_first_in_the_collective(memory: Memory) -> None:
    """Other objects may follow it in the memory."""
    memory.put(NEIGHBOR, "Q2i", memory.start + TCP_TABLE, 0, 8)
    memory.put(WORK + GROUP + 8, "Q", memory.start + NEIGHBOR)
    assert memory.works(WORK) == [Work(1, 17, 4)]


def test_a_collective_may_have_the_address_of_the_rank_in_its_group(memory: Memory) -> None:
    """As in PyTorch 2.13, in which `gloo::Context` has no virtual functions."""
    memory.put(WORK + GROUP, "Q", memory.start + CONTEXT + 8)
    assert memory.works(WORK) == [Work(1, 17, 4)]


def test_a_finished_collective_is_none(memory: Memory) -> None:
    memory.put(WORK + COMPLETED, "B", 1)
    assert memory.works(WORK) == []


def test_objects_of_other_types_are_no_collectives(memory: Memory) -> None:
    memory.put(OTHER, "Q", memory.start + WORK)  # it begins with an address that is no table
    assert memory.works(CONTEXT, OTHER, WORK_TYPE, REDUCE_TABLE) == []
    memory.put(REDUCE_TYPE + 16, "Q", memory.start + REDUCE_TYPE)  # a type that derives from itself
    assert memory.works(WORK) == []


@pytest.mark.parametrize("ranks", [(4, 4), (-1, 4), (0, 0), (0, 2**30)])
def test_a_group_that_makes_no_sense_has_no_ranks(memory: Memory, ranks: tuple[int, int]) -> None:
    memory.put(CONTEXT + 8, "2i", *ranks)
    assert memory.works(WORK) == [Work(1, 17, 0)]


def test_a_library_without_that_group_gives_no_ranks(memory: Memory) -> None:
    memory.layout = memory.layout._replace(context=0)
    assert memory.works(WORK) == [Work(1, 17, 0)]


def test_a_stack_without_collectives_has_none(memory: Memory) -> None:
    assert memory.works() == []
    assert works_on(os.getpid(), memory.layout, np.array([memory.start + WORK], "<u8"), b"") == []
