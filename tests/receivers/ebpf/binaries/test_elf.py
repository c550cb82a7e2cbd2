"""Symbols are those of the linker and the loader, and invalid files are refused."""

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_zernel_receivers.ebpf.binaries.elf import ElfFile, Symbol
from otel_zernel_receivers.ebpf.binaries.prologue import Machine, TrapCost
from otel_zernel_receivers.ebpf.binaries.symbol_names import UnreadableElf
from otel_zernel_receivers.ebpf.binaries.symtab import find_local
from otel_zernel_receivers.ebpf.probes.catalogue import CUDA_RUNTIME
from otel_zernel_receivers.ebpf.probes.libraries import find_attach_points
from tests.receivers.ebpf.files import open_elf
from tests.receivers.ebpf.standin import Standin

PT_DYNAMIC = 2
DT_HASH = 4
LIBC = ["realpath", "pthread_cond_wait", "malloc", "fopen", "printf", "environ", "no_such_function"]

needs_cc = pytest.mark.skipif(not shutil.which("cc"), reason="cc is not installed")


def loaded_path(library: str) -> Path:
    """The path at which the loader found a library of this process."""
    ctypes.CDLL(library)
    maps = Path("/proc/self/maps").read_text()
    return Path(re.search(rf"/\S*{re.escape(library)}", maps)[0])  # type: ignore[index]  # it is loaded


def compiled(folder: Path, source: str, *options: str) -> Path:
    """A library compiled from C code."""
    (folder / "source.c").write_text(source)
    path = folder / "library.so"
    subprocess.run(["cc", "-shared", "-fPIC", *options, "-o", str(path), str(folder / "source.c")], check=True)
    return path


@contextmanager
def in_memory(content: bytes) -> Iterator[ElfFile]:
    """An ElfFile with these bytes."""
    fd = os.memfd_create("elf")
    try:
        os.write(fd, content)
        yield ElfFile(fd)
    finally:
        os.close(fd)


def with_edits(content: bytes, edits: list[tuple[int, bytes]]) -> bytes:
    """`content` with bytes at some offsets replaced."""
    edited = bytearray(content)
    for offset, garbage in edits:
        edited[offset : offset + len(garbage)] = garbage
    return bytes(edited)


def read_everything(content: bytes) -> dict[str, list[Symbol]]:
    with in_memory(content) as elf:
        find = elf.find(["cudaLaunchKernel", "cudaMalloc", "missing"])
        for symbols in find.values():
            for symbol in symbols:
                elf.probe_point(symbol, (6, 18))
        return find


@pytest.mark.skipif(not shutil.which("nm"), reason="nm is not installed")
def test_names_versions_and_addresses_agree_with_nm() -> None:
    path = loaded_path("libc.so.6")
    listing = subprocess.run(["nm", "-D", "--with-symbol-versions", path], capture_output=True, text=True, check=True)
    expected = {
        (name, default == "@@", version, int(address, 16))
        for address, name, default, version in re.findall(r"^(\w+) [TW] (\w+)(@@?)(\S+)$", listing.stdout, re.MULTILINE)
        if name in LIBC
    }
    with open_elf(path) as elf:
        found = {
            (symbol.name, symbol.default, symbol.version, symbol.address)
            for symbols in elf.find(LIBC).values()
            for symbol in symbols
        }
    assert found == expected
    assert len([name for name, *_ in found if name == "realpath"]) == 2, "a function with an old version"


def test_file_offsets_refer_to_the_loaded_code() -> None:
    library = ctypes.CDLL("libc.so.6")
    path = loaded_path("libc.so.6")
    with open_elf(path) as elf:
        (symbol,) = elf.find(["getppid"])["getppid"]
    in_memory_code = ctypes.string_at(ctypes.cast(library.getppid, ctypes.c_void_p).value or 0, symbol.size)
    assert path.read_bytes()[symbol.offset : symbol.offset + symbol.size] == in_memory_code


@needs_cc
@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_both_kinds_of_hash_table_are_supported(tmp_path: Path, style: str) -> None:
    names = [f"f{i}" for i in range(300)]
    source = "\n".join(f"int {name}(void) {{ return 1; }}" for name in names)
    with open_elf(compiled(tmp_path, source, f"-Wl,--hash-style={style}")) as elf:
        assert list(elf.find([*names, "f300"])) == names


@needs_cc
def test_only_functions_defined_in_the_file_are_found(tmp_path: Path) -> None:
    source = "extern int imported(void); int data = 1; static int hidden(void) { return 1; }\n"
    source += "int shown(void) { return imported() + hidden(); }"
    with open_elf(compiled(tmp_path, source)) as elf:
        assert list(elf.find(["imported", "data", "hidden", "shown"])) == ["shown"]


@needs_cc
def test_the_processor_decides_how_code_is_read(standin: Standin) -> None:
    content = bytearray(standin.cudart.read_bytes())
    content[18:20] = Machine.AARCH64.to_bytes(2, "little")
    with in_memory(bytes(content)) as elf:
        (symbol,) = elf.find(["cudaLaunchKernel"])["cudaLaunchKernel"]
        assert elf.machine is Machine.AARCH64
        assert elf.probe_point(symbol, (6, 18)).cost is TrapCost.STEPPED, "push is no instruction of that processor"


def on_arm64(standin: Standin, first_instruction: int) -> bytes:
    """The stand-in for libcudart with the machine changed to arm64, and a cudaLaunchKernel that begins with `word`."""
    content = bytearray(standin.cudart.read_bytes())
    with open_elf(standin.cudart) as elf:
        (symbol,) = elf.find(["cudaLaunchKernel"])["cudaLaunchKernel"]
    content[18:20] = Machine.AARCH64.to_bytes(2, "little")
    content[symbol.offset : symbol.offset + 4] = first_instruction.to_bytes(4, "little")
    return bytes(content)


@needs_cc
@pytest.mark.parametrize(
    ("first", "probed", "refused"),
    [
        (0xA9BF7BFD, 1, ()),  # stp x29, x30, [sp, #-16]!
        (0x58000040, 0, ("cudaLaunchKernel",)),  # ldr x0, literal
    ],
)
def test_on_arm64_a_hot_function_is_probed_unless_the_kernel_refuses(
    standin: Standin, first: int, probed: int, refused: tuple[str, ...]
) -> None:
    launch = [probe for probe in CUDA_RUNTIME if probe.function == "cudaLaunchKernel"]
    fd = os.memfd_create("libcudart")
    try:
        os.write(fd, on_arm64(standin, first))
        places = find_attach_points(fd, launch)
    finally:
        os.close(fd)
    assert (len(places.probed), places.single_stepped, places.refused) == (probed, (), refused)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cannot read 64 bytes at 0 of a file of 0 bytes"),
        (b"#!/bin/sh\n" * 10, "not a 64-bit little-endian ELF file"),
        (b"\x7fELF\x01\x01" + bytes(100), "not a 64-bit little-endian ELF file"),
        (b"\x7fELF\x02\x02" + bytes(100), "not a 64-bit little-endian ELF file"),
        (b"\x7fELF\x02\x01" + bytes(12) + b"\xf3" + bytes(100), "another processor"),
    ],
)
def test_a_file_that_is_no_elf_file_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(UnreadableElf, match=said), in_memory(content):
        pass


def test_a_fifo_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", Path("/dev/null")):
        with pytest.raises(UnreadableElf, match="not a regular file"), open_elf(path):
            pass


def test_a_file_truncated_while_open_is_an_error_and_no_signal(standin: Standin, tmp_path: Path) -> None:
    path = tmp_path / "library.so"
    shutil.copy(standin.cudart, path)
    with open_elf(path) as elf:
        os.truncate(path, 200)
        with pytest.raises(UnreadableElf, match="truncated during reading"):
            elf.find(["cudaLaunchKernel"])


CORRUPTIONS = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@CORRUPTIONS
@given(length=st.integers(0, 40_000))
def test_a_truncated_file_is_read_or_refused(standin: Standin, length: int) -> None:
    with suppress(UnreadableElf):
        read_everything(standin.cudart.read_bytes()[:length])


@CORRUPTIONS
@given(edits=st.lists(st.tuples(st.integers(0, 0x4000), st.binary(min_size=1, max_size=8)), min_size=1, max_size=20))
def test_a_corrupt_file_is_read_or_refused(standin: Standin, edits: list[tuple[int, bytes]]) -> None:
    with suppress(UnreadableElf):
        read_everything(with_edits(standin.cudart.read_bytes(), edits))


@CORRUPTIONS
@given(value=st.integers(0, 2**64 - 1), which=st.integers(0, 31))
def test_a_corrupt_dynamic_table_is_read_or_refused(standin: Standin, value: int, which: int) -> None:
    content = standin.cudart.read_bytes()
    with in_memory(content) as elf:
        start = next(segment.offset for segment in elf._segments if segment.kind == PT_DYNAMIC)
    with suppress(UnreadableElf):
        read_everything(with_edits(content, [(start + 16 * which + 8, value.to_bytes(8, "little"))]))


@needs_cc
def test_a_hash_chain_that_never_ends_is_refused(tmp_path: Path) -> None:
    content = bytearray(compiled(tmp_path, "int f(void) { return 1; }", "-Wl,--hash-style=sysv").read_bytes())
    with in_memory(bytes(content)) as elf:
        table = elf.file_offset(elf._dynamic[DT_HASH])
    assert table
    buckets = int.from_bytes(content[table : table + 4], "little")
    for word in (*range(2, 2 + buckets), 2 + buckets + 1):  # every bucket refers to symbol 1, and so does its successor
        content[table + 4 * word : table + 4 * word + 4] = (1).to_bytes(4, "little")
    with in_memory(bytes(content)) as elf, pytest.raises(UnreadableElf, match="has no end"):
        elf.find(["g"])


def test_a_table_beyond_the_largest_file_is_refused(standin: Standin, tmp_path: Path) -> None:
    content = bytearray(standin.cudart.read_bytes())
    content[40:48] = (1 << 63).to_bytes(8, "little")  # the offset of the sections in the header
    (tmp_path / "garbled").write_bytes(content)
    with (tmp_path / "garbled").open("rb") as file, pytest.raises(UnreadableElf, match="a table of"):
        find_local(file.fileno(), [b"anything"])
