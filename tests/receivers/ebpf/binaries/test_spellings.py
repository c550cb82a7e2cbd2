"""C++ functions are found by their qualified names, for every mangling of their arguments."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from otel_zernel_receivers.ebpf.binaries.spellings import beginnings, keeps_arguments
from otel_zernel_receivers.ebpf.probes.calls import CallKind
from otel_zernel_receivers.ebpf.probes.catalogue import TORCH_CPU, TORCH_PYTHON
from otel_zernel_receivers.ebpf.probes.libraries import find_attach_points

ENTER = "_ZN5torch8autograd8profiler25record_function_enter_newE"
needs_cc = pytest.mark.skipif(not shutil.which("cc"), reason="cc is not installed")


@pytest.mark.parametrize(
    ("qualified", "spelled"),
    [
        ("at::RecordFunction::end", {"_ZN2at14RecordFunction3endE", "_ZNK2at14RecordFunction3endE"}),
        ("c10d::Work::Work", {"_ZN4c10d4WorkC1E", "_ZN4c10d4WorkC2E"}),
        ("THPEngine_run_backward", {"_Z22THPEngine_run_backward", "_ZL22THPEngine_run_backward"}),
    ],
)
def test_a_qualified_name_gives_the_beginning_of_every_mangling(qualified: str, spelled: set[str]) -> None:
    assert {beginning.decode() for beginning in beginnings(qualified)} == spelled


@pytest.mark.skipif(not shutil.which("c++filt"), reason="c++filt is not installed")
@pytest.mark.parametrize("probe", [*TORCH_CPU, *TORCH_PYTHON], ids=lambda probe: probe.function)
def test_the_manglings_agree_with_binutils(probe) -> None:  # type: ignore[no-untyped-def]
    names = [f"{beginning.decode()}v" for beginning in beginnings(probe.function)]
    read = subprocess.run(["c++filt", *names], capture_output=True, text=True, check=True).stdout.split("\n")
    assert {name.removesuffix(" const") for name in filter(None, read)} == {f"{probe.function}()"}


@pytest.mark.parametrize(
    ("symbol", "is_whole"),
    [
        ("_Z1fi", True),
        ("_Z1fi.cold", False),
        ("_Z1fi.part.0", False),
        ("_Z1fi.isra.0", False),
        ("_Z1fi.constprop.0", False),
        ("_Z1fi.lto_priv.0", True),
        ("_Z1fi.localalias", True),
        ("_Z1fi.llvm.123456", True),
        ("_Z1fi.lto_priv.0.cold", False),
    ],
)
def test_parts_and_copies_with_other_arguments_are_not_functions(symbol: str, is_whole: bool) -> None:
    assert keeps_arguments(symbol) is is_whole


def compiled(folder: Path, functions: Sequence[str], options: Sequence[str] = ()) -> Path:
    """A library with functions that have these symbols. `static` before a name makes the symbol local."""
    lines = []
    for number, function in enumerate(functions):
        static, _, symbol = function.rpartition(" ")
        lines.append(f'{static} int f{number}(void) __asm__("{symbol}");')
        lines.append(f"__attribute__((used, noinline)) {static} int f{number}(void) {{ return {number}; }}")
    (folder / "source.c").write_text("\n".join(lines))
    path = folder / "library.so"
    subprocess.run(["cc", "-shared", "-fPIC", *options, "-o", path, folder / "source.c"], check=True)
    return path


def found(path: Path) -> list[str]:
    """The functions of PyTorch that would be probed, once for each place."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return [place.probe.function for place in find_attach_points(fd, (*TORCH_CPU, *TORCH_PYTHON)).probed]
    finally:
        os.close(fd)


@needs_cc
@pytest.mark.parametrize(
    "arguments",
    [
        "RKSsRKN3c108optionalISsEE",  # 2.1
        "RKSsRKSt8optionalISsE",  # 2.3 to 2.6
        "RKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt8optionalIS7_E",  # from 2.7 on
    ],
)
def test_both_string_abis_and_both_optionals_are_found(tmp_path: Path, arguments: str) -> None:
    assert found(compiled(tmp_path, [ENTER + arguments])) == ["torch::autograd::profiler::record_function_enter_new"]


@needs_cc
def test_a_function_with_another_kind_of_string_is_not_probed(tmp_path: Path) -> None:
    libcxx = "RKNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEEE"
    assert found(compiled(tmp_path, [ENTER + libcxx, f"{ENTER}PKc", f"{ENTER}St17basic_string_viewIcE"])) == []


@needs_cc
@pytest.mark.parametrize(
    "symbol", ["_Z22THPEngine_run_backwardP7_objectS0_S0_", "static _ZL22THPEngine_run_backwardP7_objectS0_S0_"]
)
def test_backward_is_found_whether_or_not_it_is_exported(tmp_path: Path, symbol: str) -> None:
    assert found(compiled(tmp_path, [symbol])) == ["THPEngine_run_backward"]


@needs_cc
def test_backward_without_a_symbol_table_is_not_found(tmp_path: Path) -> None:
    assert found(compiled(tmp_path, ["static _ZL22THPEngine_run_backwardP7_objectS0_S0_"], ["-s"])) == []


@needs_cc
def test_every_overload_is_probed_but_no_part_of_one(tmp_path: Path) -> None:
    end = "_ZN2at14RecordFunction3endE"
    assert found(compiled(tmp_path, [f"{end}b", f"{end}v", f"static {end}v.cold"])) == ["at::RecordFunction::end"] * 2


@needs_cc
def test_constructors_at_one_address_are_one_place(tmp_path: Path) -> None:
    (tmp_path / "alias.c").write_text("")
    path = compiled(tmp_path, ["_ZN4c10d4WorkC2Ei"], ["-Wl,--defsym=_ZN4c10d4WorkC1Ei=_ZN4c10d4WorkC2Ei"])
    assert found(path) == ["c10d::Work::Work"]


@needs_cc
def test_a_longer_name_is_another_function(tmp_path: Path) -> None:
    assert found(compiled(tmp_path, ["_ZN2at14RecordFunction4endsEv", "_ZN4c10d4Work4waitIiEEvv"])) == []


def test_autograds_engine_has_no_probe_on_its_return() -> None:
    """It throws the exceptions of backward, and an exception that passes a return probe ends the job."""
    assert not [probe for probe in (*TORCH_CPU, *TORCH_PYTHON) if "Engine::execute" in probe.function]
    may_return = {CallKind.SCOPE_BEGIN: TORCH_CPU, CallKind.BACKWARD: TORCH_PYTHON}
    returning = [probe for probe in (*TORCH_CPU, *TORCH_PYTHON) if probe.has_return]
    assert {probe.kind for probe in returning} == set(may_return)
