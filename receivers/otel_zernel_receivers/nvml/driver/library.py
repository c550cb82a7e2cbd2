"""NVML, NVIDIA's library for monitoring GPUs: loads it, initialises it, and explains its error codes."""

import _ctypes
import importlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

DriverVersion = tuple[int, int]
"""The branch and the release of a driver: (580, 159) of 580.159.04."""
Nvml = Any
"""The module pynvml. It has no types, and its functions depend on its version."""
Handle = Any
"""NVML's handle of a device: a board or a MIG instance."""


class NvmlUnavailable(Exception):
    """NVML does not work on this machine. The message is a sentence for the user."""


class DriverMissing(NvmlUnavailable):
    """No driver is installed: the machine may have no GPU of NVIDIA."""


class GpuLost(Exception):
    """The GPU is gone, or requires a reset. The message is a sentence for the user, without its subject."""


class GpuUnidentified(Exception):
    """The driver does not return the GPU's uuid, for a reason that may pass. The message is as of `GpuLost`."""


OnQueryError = Callable[[str, str], None]
"""Called with the query and the error when a query fails for a reason that may pass."""


_NO_LIBRARY = "NVML_ERROR_LIBRARY_NOT_FOUND"
_UNAVAILABLE = {
    _NO_LIBRARY: "libnvidia-ml.so.1 was not found; install NVIDIA's driver, "
    "or run the container with the NVIDIA runtime and the driver capability `utility`",
    "NVML_ERROR_DRIVER_NOT_LOADED": "NVIDIA's driver is not loaded; load it with `modprobe nvidia`",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "libnvidia-ml.so.1 and the loaded driver are of different versions, "
    "as after an update; reload the driver or reboot",
    "NVML_ERROR_NO_PERMISSION": "no permission to use NVIDIA's driver; check the access to /dev/nvidia*",
    "NVML_ERROR_UNINITIALIZED": "NVML was shut down",
}
_LOST = {
    "NVML_ERROR_GPU_IS_LOST": "has fallen off the bus or is otherwise inaccessible",
    "NVML_ERROR_RESET_REQUIRED": "requires a reset",
    "NVML_ERROR_GPU_NOT_FOUND": "is no longer listed by the driver",
}
_UNSUPPORTED = (
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
    "NVML_ERROR_INVALID_ARGUMENT",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    "NVML_ERROR_DEPRECATED",
)


class NvmlLibrary:
    """An initialised NVML. All methods block. Only one thread at a time may create or close it."""

    def __init__(self, on_error: OnQueryError = lambda query, error: None) -> None:
        """Loads NVML and initialises it. Raises `NvmlUnavailable`."""
        self.on_error = on_error
        self.nvml = _pynvml()
        self._error_names = {
            getattr(self.nvml, name): name for name in dir(self.nvml) if name.startswith("NVML_ERROR_")
        }
        try:
            self.nvml.nvmlInit()
        except self.nvml.NVMLError as error:
            if error.value == self.nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
                self._unload()
            name = self._error_names.get(error.value, "")
            if name == _NO_LIBRARY:
                raise DriverMissing(_UNAVAILABLE[name]) from error
            raise NvmlUnavailable(_UNAVAILABLE.get(name, f"NVML cannot be initialised: {error}")) from error
        self.driver_version = self._version("nvmlSystemGetDriverVersion")
        cuda = self._version("nvmlSystemGetCudaDriverVersion")
        self.cuda_version = f"{int(cuda) // 1000}.{int(cuda) % 1000 // 10}" if cuda else ""

    @property
    def driver(self) -> DriverVersion:
        """(580, 159) of 580.159.04; (0, 0) if unknown."""
        major, _, rest = self.driver_version.partition(".")
        minor = rest.partition(".")[0]
        return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)

    def close(self) -> None:
        """Shuts NVML down. No other thread may be inside NVML."""
        with suppress(self.nvml.NVMLError):
            self.nvml.nvmlShutdown()

    def raise_for(self, code: int) -> None:
        """Raises `NvmlUnavailable` or `GpuLost` if NVML's error code means that."""
        name = self._error_names.get(code, "")
        if name in _UNAVAILABLE and name not in _UNSUPPORTED:
            raise NvmlUnavailable(_UNAVAILABLE[name])
        if name in _LOST:
            raise GpuLost(_LOST[name])

    def record_error(self, query: str, code: int) -> bool:
        """Returns whether the error is permanent: the board or the driver does not support the query.

        Any other error may pass and is reported to `on_error`. Raises like `raise_for`.
        """
        self.raise_for(code)
        if self._error_names.get(code, "") in _UNSUPPORTED:
            return True
        self.on_error(query, self.error_name(code))
        return False

    def error_name(self, code: int) -> str:
        """`not_supported` for 3."""
        return self._error_names.get(code, f"error_{code}").removeprefix("NVML_ERROR_").lower()

    def _version(self, function: str) -> str:
        try:
            return str(getattr(self.nvml, function)())
        except self.nvml.NVMLError:
            return ""

    def _unload(self) -> None:
        """Lets the next `nvmlInit` load the library that an update has installed."""
        _ctypes.dlclose(self.nvml.nvmlLib._handle)  # ctypes never unloads a library by itself
        self.nvml.nvmlLib = None
        self.nvml._nvmlGetFunctionPointer_cache.clear()


def _pynvml() -> Nvml:
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise NvmlUnavailable("the Python package nvidia-ml-py is not installed; pip install nvidia-ml-py") from error
