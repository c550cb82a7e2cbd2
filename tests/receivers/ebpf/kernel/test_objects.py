"""The committed objects are built from the sources, and the numpy types match their structs."""

import hashlib
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

import pytest

from otel_zernel_receivers.ebpf.kernel import kernel_structs
from otel_zernel_receivers.ebpf.probes import calls

ROOT = Path(__file__).parents[4]
SOURCES = sorted([*(ROOT / "bpf").glob("*.bpf.c"), *(ROOT / "bpf").glob("*.bpf.h")])
FOLDER = Path(kernel_structs.__file__).parents[1] / "objects"
OBJECTS = sorted(FOLDER.glob("*/*.bpf.o"))

each_object = pytest.mark.parametrize("path", OBJECTS, ids=[f"{path.parent.name}-{path.name}" for path in OBJECTS])


def section(elf: bytes, wanted: str) -> bytes:
    """The bytes of a section of a little-endian 64-bit ELF file."""
    table, width, count, names = (
        struct.unpack_from("<Q", elf, 40)[0],
        *struct.unpack_from("<HHH", elf, 58),
    )
    headers = [struct.unpack_from("<IIQQQQ", elf, table + width * index) for index in range(count)]
    for name, _, _, _, offset, size in headers:
        start = headers[names][4] + name
        if elf[start : elf.index(b"\0", start)].decode() == wanted:
            return elf[offset : offset + size]
    raise LookupError(wanted)


# Bytes that follow `struct btf_type`, by kind (linux/btf.h).
_EXTRA = {1: 4, 3: 12, 4: 12, 5: 12, 6: 8, 13: 8, 14: 4, 15: 12, 17: 4, 19: 12}
_PER_MEMBER = {4, 5, 6, 13, 15, 19}


def structs(btf: bytes) -> Iterator[tuple[str, int, dict[str, int]]]:
    """Name, size and field offsets of every struct and union in a .BTF section."""
    header_size, types, types_size, strings = struct.unpack_from("<IIII", btf, 4)

    def name_at(offset: int) -> str:
        start = header_size + strings + offset
        return btf[start : btf.index(b"\0", start)].decode()

    at = header_size + types
    end = at + types_size
    while at < end:
        name, info, size = struct.unpack_from("<III", btf, at)
        kind, members = info >> 24 & 0x1F, info & 0xFFFF
        at += 12
        if kind in (4, 5):
            fields = [struct.unpack_from("<III", btf, at + 12 * member) for member in range(members)]
            yield name_at(name), size, {name_at(field): (bits & 0xFFFFFF) // 8 for field, _, bits in fields}
        at += _EXTRA.get(kind, 0) * (members if kind in _PER_MEMBER else 1)


def test_every_variant_and_architecture_has_an_object() -> None:
    assert [f"{path.parent.name}/{path.name}" for path in OBJECTS] == [
        f"{arch}/{variant}.bpf.o" for arch in ("aarch64", "x86_64") for variant in ("classic", "session", "session_ctx")
    ]


@each_object
def test_an_object_is_built_from_the_sources(path: Path) -> None:
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES)).hexdigest()
    assert section(path.read_bytes(), "sources").rstrip(b"\0").decode() == digest, "run `make bpf`"


@each_object
def test_numpy_types_match_the_structs(path: Path) -> None:
    found = {name: (size, fields) for name, size, fields in structs(section(path.read_bytes(), ".BTF"))}
    for name, dtype in kernel_structs.STRUCTS.items():
        size, fields = found[name]
        assert size == dtype.itemsize, name
        assert {field: place[1] for field, place in (dtype.fields or {}).items()} == fields, name


def sources() -> str:
    """The text of all sources without comments."""
    return re.sub(r"/\*.*?\*/", "", "".join(source.read_text() for source in SOURCES), flags=re.DOTALL)


def c_enum(name: str) -> dict[str, int]:
    """The constants of an enum in the sources."""
    (body,) = re.findall(rf"enum {name} \{{(.*?)\}}", sources(), re.DOTALL)
    constants: dict[str, int] = {}
    for entry in filter(None, map(str.strip, body.split(","))):
        constant, _, value = map(str.strip, entry.partition("="))
        constants[constant] = int(value) if value else max(constants.values(), default=-1) + 1
    return constants


@pytest.mark.parametrize(
    ("enum", "prefix", "ours"),
    [
        ("phase", "PHASE_", calls.Phase),
        ("interval", "INTERVAL_", kernel_structs.Interval),
        ("state", "", kernel_structs.State),
        ("thread_state", "THREAD_", kernel_structs.ThreadState),
        ("ending", "", kernel_structs.Ending),
        ("loss", "", kernel_structs.Loss),
        ("code", "CODE_", kernel_structs.Code),
        ("frame_position", "FRAMES_OF_", kernel_structs.FramePosition),
    ],
)
def test_both_sides_have_the_same_enums(enum: str, prefix: str, ours: type[IntEnum]) -> None:
    theirs = {
        name.removeprefix(prefix): value
        for name, value in c_enum(enum).items()
        if name not in ("LOSSES", "FRAME_POSITIONS")
    }
    assert theirs == {member.name: member.value for member in ours}


def test_the_packed_settings_have_the_size_of_the_struct() -> None:
    found = {name: size for name, size, _ in structs(section(OBJECTS[0].read_bytes(), ".BTF"))}
    assert kernel_structs.SETTINGS.size == found["settings"]


def test_the_sources_still_compile_for_both_architectures(tmp_path: Path) -> None:
    if not shutil.which("clang") or not shutil.which("llvm-strip"):
        pytest.skip("clang and llvm are not installed (they are needed to change bpf/ only)")
    subprocess.run(["make", "-C", ROOT / "bpf", f"OUT={tmp_path}"], check=True, capture_output=True)
    built = sorted(tmp_path.glob("*/*.bpf.o"))
    assert len(built) == len(OBJECTS)
    same_compiler = b"".join(path.read_bytes() for path in built) == b"".join(path.read_bytes() for path in OBJECTS)
    compiler = subprocess.run(["clang", "--version"], check=True, capture_output=True, text=True).stdout
    assert same_compiler or "version 14." not in compiler, "the committed objects were built by clang 14"
