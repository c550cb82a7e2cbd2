"""NVML itself: found, initialised, and what its errors mean for whom."""

import _ctypes
import importlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Nvml = Any
"""The module pynvml. It has no types, and which functions it has depends on its version."""
Handle = Any
"""A device, as NVML hands it out."""


class Unavailable(Exception):
    """There is no NVML to ask. The message is a sentence for the user."""


class Lost(Exception):
    """The GPU is gone, or wants a reset. The message is a sentence for the user."""


class Nameless(Exception):
    """The GPU does not say who it is, for a reason that may pass. The message is a sentence for the user."""


Failed = Callable[[str, str], None]
"""Told the query and the error when the driver does not answer for a reason that may pass."""


_UNAVAILABLE = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": "libnvidia-ml.so.1 was not found; install NVIDIA's driver, "
    "or run the container with the NVIDIA runtime and the capability `utility`",
    "NVML_ERROR_DRIVER_NOT_LOADED": "NVIDIA's driver is not loaded",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "libnvidia-ml.so.1 and the loaded driver are of different versions, "
    "as after an update; reload the driver or reboot",
    "NVML_ERROR_NO_PERMISSION": "no permission to use NVIDIA's driver; check the access to /dev/nvidia*",
    "NVML_ERROR_UNINITIALIZED": "NVML was shut down",
}
_LOST = {
    "NVML_ERROR_GPU_IS_LOST": "has fallen off the bus or is otherwise inaccessible",
    "NVML_ERROR_RESET_REQUIRED": "requires a reset",
    "NVML_ERROR_GPU_NOT_FOUND": "is no longer there",
}
_UNSUPPORTED = (
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
    "NVML_ERROR_INVALID_ARGUMENT",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    "NVML_ERROR_DEPRECATED",
)


class Library:
    """An initialised NVML. All methods block; one thread at a time may open and close it."""

    def __init__(self, failed: Failed = lambda query, error: None) -> None:
        """Loads NVML and initialises it. Raises `Unavailable`."""
        self.failed = failed
        self.nvml = _pynvml()
        self.errors = {getattr(self.nvml, name): name for name in dir(self.nvml) if name.startswith("NVML_ERROR_")}
        try:
            self.nvml.nvmlInit()
        except self.nvml.NVMLError as error:
            if error.value == self.nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
                self._unload()
            name = self.errors.get(error.value, "")
            raise Unavailable(_UNAVAILABLE.get(name, f"NVML does not work: {error}")) from error
        self.driver = self._version("nvmlSystemGetDriverVersion")
        cuda = self._version("nvmlSystemGetCudaDriverVersion")
        self.cuda = f"{int(cuda) // 1000}.{int(cuda) % 1000 // 10}" if cuda else ""

    @property
    def driver_major(self) -> int:
        """580 of 580.159.04; 0 if unknown."""
        major = self.driver.partition(".")[0]
        return int(major) if major.isdecimal() else 0

    def close(self) -> None:
        """Shuts NVML down; the next one finds the boards anew. No other thread may be inside NVML."""
        with suppress(self.nvml.NVMLError):
            self.nvml.nvmlShutdown()

    def check(self, code: int) -> None:
        """Raises `Unavailable` or `Lost` if NVML's error code says so; else returns."""
        name = self.errors.get(code, "")
        if name in _UNAVAILABLE and name not in _UNSUPPORTED:
            raise Unavailable(_UNAVAILABLE[name])
        if name in _LOST:
            raise Lost(_LOST[name])

    def unsupported(self, query: str, code: int) -> bool:
        """Whether the board or the driver will answer the query the same next time; what may pass is counted as failed.
        Raises like `check`."""
        self.check(code)
        if self.errors.get(code, "") in _UNSUPPORTED:
            return True
        self.failed(query, self.name_of(code))
        return False

    def name_of(self, code: int) -> str:
        """`not_supported` of 3."""
        return self.errors.get(code, f"error_{code}").removeprefix("NVML_ERROR_").lower()

    def _version(self, function: str) -> str:
        try:
            return str(getattr(self.nvml, function)())
        except self.nvml.NVMLError:
            return ""

    def _unload(self) -> None:
        """Lets the next `nvmlInit` load the library that an update has put in place of ours."""
        _ctypes.dlclose(self.nvml.nvmlLib._handle)  # ctypes never does it by itself
        self.nvml.nvmlLib = None
        self.nvml._nvmlGetFunctionPointer_cache.clear()


def _pynvml() -> Nvml:
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise Unavailable("the Python package nvidia-ml-py is missing; pip install nvidia-ml-py") from error
