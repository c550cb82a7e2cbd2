"""NVML that is not there, in processes that have none."""

import ctypes.util
import subprocess
import sys

import pytest

TRY = """
from otel_zernel_receivers.nvml.driver.library import NvmlLibrary, NvmlUnavailable
try:
    NvmlLibrary()
except NvmlUnavailable as problem:
    print(problem)
"""


def said(before: str = "") -> str:
    ran = subprocess.run([sys.executable, "-c", before + TRY], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_without_the_library_the_user_is_told_how_to_get_it() -> None:
    if ctypes.util.find_library("nvidia-ml"):
        pytest.skip("needs a machine without libnvidia-ml.so.1")
    assert said().startswith("libnvidia-ml.so.1 was not found; install NVIDIA's driver")


def test_without_its_python_package_the_user_is_told_what_to_install() -> None:
    missing = "import sys; sys.modules['pynvml'] = None\n"
    assert said(missing) == "the Python package nvidia-ml-py is not installed; pip install nvidia-ml-py"
