"""The ebpf receiver counts on another kernel, in an emulator. `make kernels` tries all kernels, and arm64."""

import os
import shutil
import warnings
from pathlib import Path
from typing import NoReturn

import pytest

from tests.kernels.acceptance import SHORT
from tests.kernels.campaign import Result, package, run
from tests.kernels.catalogue import KERNELS, Architecture, Kernel, named
from tests.kernels.debian.packages import CannotDownload

_NEEDED: dict[Architecture, tuple[str, ...]] = {
    "x86_64": ("qemu-system-x86_64", "cpio", "busybox"),
    "aarch64": ("qemu-system-aarch64", "cpio", "mmdebstrap", "aarch64-linux-gnu-gcc"),
}

STOOD_STILL = "the emulated machine stood still"


def need_emulator(kernel: Kernel) -> None:
    """Skips the test if a program that boots the kernel is not installed."""
    if missing := [name for name in _NEEDED[kernel.architecture] if not shutil.which(name)]:
        _skip(f"not installed: {', '.join(missing)}")


def need_package(kernel: Kernel) -> Path:
    """The unpacked package of the kernel; skips the test if it cannot be downloaded or booted."""
    need_emulator(kernel)
    try:
        return package(kernel)
    except CannotDownload as missing:
        _skip(str(missing))


def warn_of_boots(result: Result) -> None:
    """Puts a line into pytest's summary if the machine was booted again."""
    if result.boots > 1:
        warnings.warn(f"{STOOD_STILL}: {result.boots} boots of {result.kernel.name}", stacklevel=2)


def _skip(reason: str) -> NoReturn:
    if os.environ.get("REQUIRE_PEERS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


SECONDS = 1500.0
"""A boot and the short list of tests take three minutes alone, and up to eight on a busy machine."""


@pytest.mark.filterwarnings(f"default:{STOOD_STILL}")
@pytest.mark.timeout(SECONDS + 300)
def test_the_receiver_counts_on_a_kernel_of_another_machine(tmp_path: Path) -> None:
    kernel = named("6.1-x86_64")
    need_emulator(kernel)
    try:
        result = run(kernel, SHORT, tmp_path, seconds=SECONDS)
    except CannotDownload as missing:
        _skip(str(missing))
    warn_of_boots(result)
    assert not result.failures, (tmp_path / "tests").read_text()[-8000:]


def test_kernel_names_are_unique() -> None:
    assert len({kernel.name for kernel in KERNELS}) == len(KERNELS)
    with pytest.raises(KeyError, match=r"no kernel '2\.6-x86_64'; choose from 5\.10-x86_64, "):
        named("2.6-x86_64")
