"""The error if NVML is not installed, in processes without it."""

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


def error_of(before: str = "") -> str:
    """The error that a new process prints after it has run the code `before`."""
    ran = subprocess.run([sys.executable, "-c", before + TRY], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_without_the_library_the_error_names_the_remedy() -> None:
    if ctypes.util.find_library("nvidia-ml"):
        pytest.skip("needs a machine without libnvidia-ml.so.1")
    assert error_of().startswith("libnvidia-ml.so.1 was not found; install NVIDIA's driver")


def test_without_the_python_package_the_error_names_it() -> None:
    missing = "import sys; sys.modules['pynvml'] = None\n"
    assert error_of(missing) == "the Python package nvidia-ml-py is not installed; pip install nvidia-ml-py"
