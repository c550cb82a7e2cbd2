"""The committed objects are built from the sources, and the numpy types match their structs."""

import hashlib
import re
import shutil
import subprocess
from enum import IntEnum
from functools import cache
from pathlib import Path

import pytest

from otel_zernel_receivers.ebpf.kernel import kernel_structs
from otel_zernel_receivers.ebpf.probes import calls
from tests.receivers.ebpf.kernel.bpf_object import BpfObject

ROOT = Path(__file__).parents[4]
SOURCES = sorted([*(ROOT / "bpf").glob("*.bpf.c"), *(ROOT / "bpf").glob("*.bpf.h")])
FOLDER = Path(kernel_structs.__file__).parents[1] / "objects"
OBJECTS = sorted(FOLDER.glob("*/*.bpf.o"))

each_object = pytest.mark.parametrize("path", OBJECTS, ids=[f"{path.parent.name}-{path.name}" for path in OBJECTS])


@cache
def object_at(path: Path) -> BpfObject:
    return BpfObject(path.read_bytes())


def test_every_variant_and_architecture_has_an_object() -> None:
    assert [f"{path.parent.name}/{path.name}" for path in OBJECTS] == [
        f"{arch}/{variant}.bpf.o" for arch in ("aarch64", "x86_64") for variant in ("classic", "session", "session_ctx")
    ]


@each_object
def test_an_object_is_built_from_the_sources(path: Path) -> None:
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES)).hexdigest()
    assert object_at(path).section("sources").rstrip(b"\0").decode() == digest, "run `make bpf`"


@each_object
def test_numpy_types_match_the_structs(path: Path) -> None:
    structs = object_at(path).btf.structs()
    for name, dtype in kernel_structs.STRUCTS.items():
        offsets = {field: place[1] for field, place in (dtype.fields or {}).items()}
        assert structs[name] == (dtype.itemsize, offsets), name


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
    size, _ = object_at(OBJECTS[0]).btf.structs()["settings"]
    assert kernel_structs.SETTINGS.size == size


def test_the_sources_still_compile_for_both_architectures(tmp_path: Path) -> None:
    if not shutil.which("clang") or not shutil.which("llvm-strip"):
        pytest.skip("clang and llvm are not installed (they are needed to change bpf/ only)")
    subprocess.run(["make", "-C", ROOT / "bpf", f"OUT={tmp_path}"], check=True, capture_output=True)
    built = sorted(tmp_path.glob("*/*.bpf.o"))
    assert len(built) == len(OBJECTS)
    same_compiler = b"".join(path.read_bytes() for path in built) == b"".join(path.read_bytes() for path in OBJECTS)
    compiler = subprocess.run(["clang", "--version"], check=True, capture_output=True, text=True).stdout
    assert same_compiler or "version 14." not in compiler, "the committed objects were built by clang 14"
