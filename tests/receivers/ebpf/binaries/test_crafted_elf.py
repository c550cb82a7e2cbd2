"""Malicious files do not make the collector slow or large: any user's job decides which files it reads as root."""

import os
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from otel_zernel_receivers.ebpf.binaries.code_shapes import LONGEST as LONGEST_FUNCTION
from otel_zernel_receivers.ebpf.binaries.elf import ElfFile
from otel_zernel_receivers.ebpf.binaries.symbol_names import LONGEST, MOST, MOST_BYTES, UnreadableElf, find_names
from otel_zernel_receivers.ebpf.binaries.symtab import _functions, find_local
from otel_zernel_receivers.ebpf.probes.calls import CallKind
from otel_zernel_receivers.ebpf.probes.catalogue import CUDA_RUNTIME, TORCH_CPU, TORCH_PYTHON
from otel_zernel_receivers.ebpf.probes.libraries import find_attach_points
from otel_zernel_receivers.ebpf.probes.marks import Mark
from tests.receivers.ebpf.symbols.kept import Kept
from tests.receivers.ebpf.symbols.rebuilt import rebuilt

DT_VERSYM, DT_VERDEF = 0x6FFFFFF0, 0x6FFFFFFC
BACKWARD = "_ZL22THPEngine_run_backwardP7_objectS0_S0_"
WAIT = "_ZN4c10d4Work4waitEv"
PUSH = "55"


def function(name: str, address: int = 0, table: str = "exported") -> Kept:
    return Kept("", "", "", "", table, name, address, PUSH)


@contextmanager
def file_of(content: bytes, size: int | None = None) -> Iterator[int]:
    """A sparse file of `size` bytes that begins with these bytes."""
    fd = os.memfd_create("library")
    try:
        os.write(fd, content)
        os.truncate(fd, max(size or 0, len(content)))
        yield fd
    finally:
        os.close(fd)


@contextmanager
def at_most(allocated: int) -> Iterator[None]:
    """Fails if more than this number of bytes was allocated at any moment."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < allocated
    finally:
        tracemalloc.stop()


def test_a_million_chained_versions_are_refused() -> None:
    record = struct.pack("<HHHHIII", 1, 0, 0, 1, 0, 0, 20)
    versions = {DT_VERSYM: struct.pack("<2H", 0, 2), DT_VERDEF: record * 1_000_000}
    with file_of(rebuilt([function("cudaLaunchKernel")], more=versions)) as fd:
        with pytest.raises(UnreadableElf, match="list of versions has no end"):
            find_attach_points(fd, CUDA_RUNTIME)
        assert ElfFile(fd).machine


def test_inconsistent_tables_are_refused() -> None:
    functions = [function(f"f{number}") for number in range(1000)]  # all in one chain, which every look-up follows
    with file_of(rebuilt(functions)) as fd, pytest.raises(UnreadableElf, match="tables are inconsistent"):
        ElfFile(fd).find(f"g{number}" for number in range(1000))


@pytest.mark.parametrize("table", ["symbols", "names"])
@pytest.mark.parametrize("size", [MOST_BYTES, 2 * MOST_BYTES])
def test_a_sparse_symbol_table_needs_little_memory(table: str, size: int) -> None:
    content = bytearray(rebuilt([function(BACKWARD, table="full")]))
    section = len(content) - (128 if table == "symbols" else 64)
    if table == "symbols":
        struct.pack_into("<QQ", content, section + 24, len(content), size)
    else:
        offset, _ = struct.unpack_from("<QQ", content, section + 24)
        struct.pack_into("<QQ", content, section + 24, offset, size)
    with file_of(bytes(content), len(content) + size) as fd, at_most(8 << 20):
        if size > MOST_BYTES:
            with pytest.raises(UnreadableElf, match="a table of"):
                find_attach_points(fd, TORCH_PYTHON)
        else:
            find_attach_points(fd, TORCH_PYTHON)


def test_a_sparse_table_of_exported_names_needs_little_memory() -> None:
    content = bytearray(rebuilt([function(WAIT)]))
    size = MOST_BYTES + 1
    at = content.index(struct.pack("<Q", 10) + struct.pack("<Q", len(WAIT) + 2))  # DT_STRSZ
    struct.pack_into("<Q", content, at + 8, size)
    with (
        file_of(bytes(content), len(content) + size) as fd,
        at_most(8 << 20),
        pytest.raises(UnreadableElf, match="a table of"),
    ):
        find_attach_points(fd, TORCH_CPU)


def test_a_library_with_thousands_of_symbols_for_one_function_is_refused() -> None:
    many = [function(f"{WAIT}{number}", number) for number in range(MOST + 1)]
    with file_of(rebuilt(many)) as fd, pytest.raises(UnreadableElf, match="functions of one name"):
        find_attach_points(fd, TORCH_CPU)
    local = [one._replace(name=f"{BACKWARD}{number}", table="full") for number, one in enumerate(many)]
    with file_of(rebuilt(local)) as fd, pytest.raises(UnreadableElf, match="functions of one name"):
        find_local(fd, [BACKWARD.encode()])


def test_one_name_at_many_addresses_is_refused() -> None:
    symbol = struct.pack("<IBBHQQ", 1, 0x12, 0, 1, 64, 16)
    with file_of(bytes(64) + symbol * (MOST + 1)) as fd:
        names = {1: BACKWARD}
        with pytest.raises(UnreadableElf, match="functions of one name"):
            list(_functions(fd, 64, len(symbol) * (MOST + 1), names))


RETURNS = "55 b801000000 5d c3"
"""A function that returns true, from its second byte on."""


def file_with_wait_of(size: int) -> bytes:
    """A library in which the symbol of c10d::Work::wait has this size."""
    content = bytearray(rebuilt([function(WAIT)._replace(code=RETURNS)]))
    symbol = content.index(struct.pack("<IBBH", 1, 0x12, 0, 1))
    struct.pack_into("<Q", content, symbol + 16, size)
    return bytes(content)


@pytest.mark.parametrize("size", [8, 16, LONGEST_FUNCTION])
def test_returns_are_searched_within_the_size_of_the_function(size: int) -> None:
    with file_of(file_with_wait_of(size)) as fd:
        places = find_attach_points(fd, TORCH_CPU)
    assert len([place for place in places.probed if place.probe.is_at_return]) == 1
    assert Mark.COLLECTIVE_WAIT not in places.missing


@pytest.mark.parametrize("size", [0, 1, 7, LONGEST_FUNCTION + 1, 1 << 20, 1 << 63, (1 << 64) - 1])
def test_a_wait_of_an_impossible_size_is_a_missing_mark(size: int) -> None:
    with file_of(file_with_wait_of(size)) as fd:
        places = find_attach_points(fd, TORCH_CPU)
    assert [place.probe.kind for place in places.probed] == [CallKind.WORK_WAIT]
    assert places.missing[Mark.COLLECTIVE_WAIT] == "returns of c10d::Work::wait"


@pytest.mark.parametrize("before", [0, 1, (1 << 20) - 10, (1 << 20) - 1, 1 << 20, (1 << 20) + LONGEST])
def test_names_across_the_end_of_a_piece_are_found(before: int) -> None:
    names = b"x" * before + b"\0" + WAIT.encode() + b"\0"
    with file_of(names) as fd:
        assert find_names(fd, 0, len(names), [b"_ZN4c10d4Work4waitE"]) == {before + 1: WAIT}


def test_an_unterminated_name_is_not_found() -> None:
    names = b"\0" + WAIT.encode() + b"x" * 2 * LONGEST
    with file_of(names) as fd:
        assert find_names(fd, 0, len(names), [b"_ZN4c10d4Work4waitE"]) == {}


def test_unterminated_names_count_towards_the_limit() -> None:
    names = WAIT.encode() * (MOST + 1)
    with file_of(names) as fd, pytest.raises(UnreadableElf, match="functions of one name"):
        find_names(fd, 0, len(names), [b"_ZN4c10d4Work4waitE"])
