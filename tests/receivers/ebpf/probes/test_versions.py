"""The catalogue of probes agrees with the symbols of released PyTorch, CUDA and NCCL."""

import re
import shutil
from collections import Counter
from dataclasses import replace

import pytest

from docs.versions import VERSIONS, written_into
from otel_zernel_receivers.ebpf.binaries.prologue import TrapCost
from otel_zernel_receivers.ebpf.binaries.spellings import keeps_arguments
from otel_zernel_receivers.ebpf.budget.overhead import GROUP_KINDS, Group
from otel_zernel_receivers.ebpf.probes import operators
from otel_zernel_receivers.ebpf.probes.calls import CallKind
from otel_zernel_receivers.ebpf.probes.catalogue import NCCL
from otel_zernel_receivers.ebpf.processes.files.used_files import MappedLibrary
from tests.receivers.ebpf.symbols.kept import CODE, Returns, builds, returns, symbols
from tests.receivers.ebpf.symbols.releases import Release, releases
from tests.receivers.ebpf.symbols.returns import OBJDUMP, is_whole, returns_of_all, whole_functions

GROUPS = ("torch", "cuda", "nccl")
ALL = [release for group in GROUPS for release in releases(group)]
LATER = {"ncclCommInitRankScalable": (2, 23)}
"""Functions that were added in a release."""
TWICE = {"torch::autograd::THPVariable_mm", "torch::autograd::THPVariable_bmm"}
"""Static functions of two files: of `torch.mm` and of `Tensor.mm`."""
INCOMPLETE = "2.15.0"
"""Of this release only these functions are stored."""
STORED = {
    "torch::autograd::profiler::record_function_enter_new",
    "at::RecordFunction::end",
    "c10d::Work::Work",
    "c10d::Work::wait",
    "c10d::Reducer::finalize_backward",
    "THPEngine_run_backward",
}
UNSTORED = {
    "c10d::ProcessGroupGloo::AsyncWork::AsyncWork",
    "c10d::ProcessGroupGloo::SendWork::wait",
    "c10d::ProcessGroupGloo::RecvWork::wait",
    "c10d::Work::finishAndThrow",
    "c10d::Work::finish",
    "c10d::ProcessGroup::getBackend",
    "c10d::ProcessGroupGloo::send",
    "at::autocast::increment_nesting",
    "THPFunction_apply",
    *(
        f"at::_ops::{name}::call"
        for name in ("embedding_bag_padding_idx", *operators.BATCHES, *operators.NOISES, *operators.IN_PLACE)
    ),
}
"""Functions that are not stored yet. See test_work_numbers.py."""
COMPLETE = [release for release in releases("torch") if release.version != INCOMPLETE]


WAITING = [release for release in releases("torch") if release.library is MappedLibrary.TORCH_CPU]
"""The libraries that have a function with probes on its returns."""


def of_release(release: Release) -> list[Returns]:
    """The returns in each part of that function, according to binutils."""
    return [one for one in returns() if (one.version, one.arch) == (release.version, release.arch)]


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


@pytest.mark.parametrize("release", ALL, ids=str)
def test_every_function_is_found_at_one_place_in_every_release(release: Release) -> None:
    missing = {function for function, first in LATER.items() if numbers(release.version) < first}
    functions = {probe.function for probe in release.probes} - UNSTORED
    if release.version == INCOMPLETE:
        functions &= STORED
    costs = release.costs()
    assert {function: len(costs[function]) for function in functions} == {
        function: 2 if function in TWICE else int(function not in missing) for function in functions
    }


@pytest.mark.parametrize("release", COMPLETE, ids=str)
def test_no_release_lacks_a_mark(release: Release) -> None:
    assert release.places().missing == {}
    assert release.places().refused == ()


@pytest.mark.parametrize("release", WAITING, ids=str)
def test_a_wait_is_probed_only_at_its_entry_and_at_returns_of_true(release: Release) -> None:
    (known,) = [one for one in of_release(release) if keeps_arguments(one.name)]
    assert known.offsets
    assert release.return_offsets() == {"c10d::Work::wait": set(known.offsets)}
    assert len(release.costs()["returns of c10d::Work::wait"]) == len(known.offsets)


@pytest.mark.parametrize("release", WAITING, ids=str)
def test_the_cold_part_of_a_wait_returns_in_one_release_only(release: Release) -> None:
    """BOLT made that part. It returns only if the program has no threads, and is not probed."""
    places = [offset for one in of_release(release) if not keeps_arguments(one.name) for offset in one.offsets]
    assert len(places) == ((release.version, release.arch) == ("2.15.0", "aarch64"))


@pytest.mark.skipif(
    not all(shutil.which(command) for command, _ in OBJDUMP.values()), reason="objdump for both processors is missing"
)
def test_the_stored_returns_agree_with_objdump() -> None:
    assert tuple(returns_of_all(whole_functions(symbols("torch")))) == returns()


@pytest.mark.parametrize("arch", ["x86_64", "aarch64"])
def test_a_hit_at_the_end_of_a_wait_is_stepped_on_x86_64_and_emulated_on_arm64(arch: str) -> None:
    ends = [release.costs()["returns of c10d::Work::wait"] for release in WAITING if release.arch == arch]
    assert {cost for costs in ends for cost in costs} == {TrapCost.STEPPED if arch == "x86_64" else TrapCost.EMULATED}


@pytest.mark.parametrize("release", releases("torch"), ids=str)
def test_only_whole_functions_are_probed(release: Release) -> None:
    """Each place is in a function whose name has no suffix, and not in a part of one."""
    has_exit = any(place.probe.is_at_tail_call for place in release.places().probed)
    unused = {"at::RecordFunction::end"} if has_exit else set()
    parts = {symbol.address for symbol in release.symbols if not keeps_arguments(symbol.name)}
    whole = {symbol.address for symbol in release.symbols if "." not in symbol.name}
    assert not parts & whole
    spelled = tuple(name for probe in release.probes for name in probe.beginnings if probe.target not in unused)
    of_ours = {
        symbol.address
        for symbol in release.symbols
        if symbol.name.encode().startswith(spelled) and "." not in symbol.name
    }
    assert len([place for place in release.places().probed if not place.probe.is_at_return]) == len(of_ours)


@pytest.mark.parametrize("release", COMPLETE, ids=str)
def test_the_end_of_a_scope_is_probed_where_autograd_does_not_come(release: Release) -> None:
    """Each node of a backward pass calls at::RecordFunction::end()."""
    ends = [place.probe.function for place in release.places().probed if place.probe.kind is CallKind.SCOPE_END]
    assert ends == ["torch::autograd::profiler::record_function_exit_new"] * (
        release.library is MappedLibrary.TORCH_CPU
    )


def test_a_hit_of_an_operator_is_emulated_on_x86_64() -> None:
    """A job calls some hundred operators in a step."""
    costs = [release.costs() for release in COMPLETE if release.arch == "x86_64"]
    kinds = GROUP_KINDS[Group.OPERATORS]
    targets = {probe.target for release in COMPLETE for probe in release.probes if probe.kind in kinds}
    assert {cost for of_release in costs for target in targets for cost in of_release.get(target, [])} == {
        TrapCost.EMULATED
    }


@pytest.mark.parametrize("group", ["cuda", "nccl"])
def test_no_call_of_cuda_is_single_stepped_on_x86_64(group: str) -> None:
    stepped = {
        (release.version, function)
        for release in releases(group)
        for function, costs in release.costs().items()
        if release.arch == "x86_64" and TrapCost.STEPPED in costs
    }
    assert not {function for _, function in stepped if function.startswith("cuda")}


def test_the_oldest_and_the_newest_supported_releases_are_stored() -> None:
    kept = {(build.package, numbers(build.version), build.arch) for group in GROUPS for build in builds(group)}
    for minor in range(1, 16):
        assert {("torch", (2, minor), arch) for arch in ("x86_64", "aarch64")} <= kept
    assert ("nvidia-cuda-runtime-cu11", (11, 8), "x86_64") in kept
    assert ("nvidia-cuda-runtime", (13, 5), "aarch64") in kept
    assert ("nvidia-nccl-cu12", (2, 18), "x86_64") in kept
    assert ("nvidia-nccl-cu13", (2, 32), "aarch64") in kept


def test_no_wheel_of_pytorch_contains_nccl() -> None:
    """Otherwise docs/versions.md would be wrong, and libtorch_cuda.so would be probed."""
    assert not [symbol for symbol in symbols("torch") if symbol.library == "libtorch_cuda"]


@pytest.mark.parametrize("release", releases("nccl")[-2:], ids=str)
def test_nccl_that_is_linked_into_libtorch_cuda_is_probed_there(release: Release) -> None:
    inside = replace(release, library=MappedLibrary.TORCH_CUDA)
    functions = {function for function, costs in inside.costs().items() if costs}
    assert functions == {probe.function for probe in NCCL}


def test_only_names_first_instructions_and_functions_with_probed_returns_are_stored() -> None:
    for group in GROUPS:
        assert {len(symbol.code) for symbol in symbols(group) if not is_whole(symbol.name)} == {2 * CODE}
    assert {whole_function.name.partition("E")[0] for whole_function in whole_functions(symbols("torch"))} == {
        "_ZN4c10d4Work4wait"
    }


# Names as in disassemblers: (mask, bits) of the first word.
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


def test_functions_on_arm64_begin_by_saving_registers_and_are_single_stepped() -> None:
    begins = Counter(
        first_instruction(symbol.code)
        for release in ALL
        for symbol in release.symbols
        if release.arch == "aarch64" and symbol.table == "exported"
    )
    assert begins["paciasp"] == begins["bti"] == 0, "docs/versions.md says that no function begins so"
    assert begins["stp"] + begins["sub sp"] > 0.9 * begins.total()


def test_the_tables_of_docs_versions_agree_with_the_symbols() -> None:
    text = VERSIONS.read_text("utf-8")
    assert written_into(text) == text, "run `make docs`"
    assert not re.search(r"<!-- (torch|cuda|nccl): [^>]*-->\n<!--", text)
