"""The catalogue of probes, held against the symbols of released PyTorch, CUDA and NCCL."""

import re
from collections import Counter
from dataclasses import replace

import pytest

from docs.versions import VERSIONS, written_into
from otel_zernel_receivers.ebpf.marks import Mark
from otel_zernel_receivers.ebpf.probes import NCCL
from otel_zernel_receivers.ebpf.processes import Library
from otel_zernel_receivers.ebpf.prologue import Cost
from otel_zernel_receivers.ebpf.spellings import beginnings, keeps_arguments
from tests.receivers.ebpf.symbols.kept import CODE, builds, symbols
from tests.receivers.ebpf.symbols.releases import Release, releases

GROUPS = ("torch", "cuda", "nccl")
ALL = [release for group in GROUPS for release in releases(group)]
LATER = {
    "c10d::Work::synchronize": (2, 6),
    "c10d::allow_inflight_collective_as_graph_input": (2, 6),
    "ncclCommInitRankScalable": (2, 23),
}
"""Functions that came with a release, or were empty before it."""


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


@pytest.mark.parametrize("release", ALL, ids=str)
def test_every_function_is_found_at_one_place_in_every_release(release: Release) -> None:
    missing = {function for function, first in LATER.items() if numbers(release.version) < first}
    expected = {probe.function: int(probe.function not in missing) for probe in release.probes}
    assert {function: len(costs) for function, costs in release.costs().items()} == expected


@pytest.mark.parametrize("release", releases("torch"), ids=str)
def test_no_release_lacks_a_mark_but_the_old_ones_waits_for_collectives(release: Release) -> None:
    is_old = release.library is Library.TORCH_CPU and numbers(release.version) < (2, 6)
    assert set(release.places().missing) == ({Mark.COLLECTIVE_WAIT} if is_old else set())


@pytest.mark.parametrize("release", releases("torch"), ids=str)
def test_only_whole_functions_are_probed(release: Release) -> None:
    """Each place is the address of a name without a suffix: of a function, rather than of a part of it."""
    parts = {one.address for one in release.symbols if not keeps_arguments(one.name)}
    whole = {one.address for one in release.symbols if "." not in one.name}
    assert not parts & whole
    spelled = tuple(name for probe in release.probes for name in beginnings(probe.function))
    of_ours = {one.address for one in release.symbols if one.name.encode().startswith(spelled) and "." not in one.name}
    empty = {one.address for one in release.symbols if first_instruction(one.code) == "ret" or one.code[:2] == "c3"}
    assert len(release.places().probed) == len(of_ours - empty)


@pytest.mark.parametrize("group", ["cuda", "nccl"])
def test_on_x86_64_no_call_of_cuda_is_too_dear(group: str) -> None:
    dear = {
        (release.version, function)
        for release in releases(group)
        for function, costs in release.costs().items()
        if release.arch == "x86_64" and Cost.STEPPED in costs
    }
    assert not {function for _, function in dear if function.startswith("cuda")}


def test_the_oldest_and_the_newest_releases_are_among_them() -> None:
    kept = {(build.package, numbers(build.version), build.arch) for group in GROUPS for build in builds(group)}
    for minor in range(1, 16):
        assert {("torch", (2, minor), arch) for arch in ("x86_64", "aarch64")} <= kept
    assert ("nvidia-cuda-runtime-cu11", (11, 8), "x86_64") in kept
    assert ("nvidia-cuda-runtime", (13, 5), "aarch64") in kept
    assert ("nvidia-nccl-cu12", (2, 18), "x86_64") in kept
    assert ("nvidia-nccl-cu13", (2, 32), "aarch64") in kept


def test_no_wheel_of_pytorch_has_nccl_inside() -> None:
    """Else docs/versions.md would be wrong, and libtorch_cuda.so be what is probed."""
    assert not [one for one in symbols("torch") if one.library == "libtorch_cuda"]


@pytest.mark.parametrize("release", releases("nccl")[-2:], ids=str)
def test_nccl_that_is_linked_into_libtorch_cuda_is_probed_there(release: Release) -> None:
    inside = replace(release, library=Library.TORCH_CUDA)
    found = {function for function, costs in inside.costs().items() if costs}
    assert found == {probe.function for probe in NCCL}


def test_nothing_but_names_and_first_instructions_is_kept() -> None:
    for group in GROUPS:
        assert {len(one.code) for one in symbols(group)} == {2 * CODE}


# As disassemblers name them: (mask, bits) of the first word.
ARM = {
    "stp": (0x7FC00000, 0x29800000),
    "sub sp": (0xFF8003FF, 0xD10003FF),
    "paciasp": (0xFFFFFFFF, 0xD503233F),
    "bti": (0xFFFFFF3F, 0xD503241F),
    "ret": (0xFFFFFC1F, 0xD65F0000),
    "adrp": (0x9F000000, 0x90000000),
    "cbz": (0x7E000000, 0x34000000),
}


def first_instruction(code: str) -> str:
    word = int.from_bytes(bytes.fromhex(code)[:4], "little")
    return next((name for name, (mask, bits) in ARM.items() if word & mask == bits), "another")


def test_on_arm64_functions_begin_by_saving_registers_and_are_stepped() -> None:
    begins = Counter(
        first_instruction(one.code)
        for release in ALL
        for one in release.symbols
        if release.arch == "aarch64" and one.table == "exported"
    )
    assert begins["paciasp"] == begins["bti"] == 0, "docs/versions.md says that there is none"
    assert begins["stp"] + begins["sub sp"] > 0.9 * begins.total()


def test_the_tables_of_docs_versions_are_those_of_the_symbols() -> None:
    text = VERSIONS.read_text("utf-8")
    assert written_into(text) == text, "run `make docs`"
    assert not re.search(r"<!-- (torch|cuda|nccl): [^>]*-->\n<!--", text)
