"""A GPU for the loops of `truth.py`: stand-ins for CUDA and NCCL, with asynchronous streams."""

import ctypes
import time
from pathlib import Path

_MS = 1_000_000


class _Dim3(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint))


class _UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * 128),)


class StandinGpu:
    """One stream for kernels and one for collectives. Calls return immediately, except waits and copies."""

    def __init__(self, folder: Path) -> None:
        """Loads the libraries in `folder`. Raises `OSError` if they are missing."""
        self._cuda = ctypes.CDLL(str(folder / "libcudart.so.12"), ctypes.RTLD_GLOBAL)
        self._nccl = ctypes.CDLL(str(folder / "libnccl.so.2"))
        self._computing, self._communicating, self._communicator = (ctypes.c_void_p() for _ in range(3))
        for stream in (self._computing, self._communicating):
            self._cuda.cudaStreamCreate(ctypes.byref(stream))
        self._nccl.ncclCommInitRank(ctypes.byref(self._communicator), 2, _UniqueId(), 0)
        self.in_flight: list[tuple[int, int]] = []
        """Start and end of each collective, in ns of CLOCK_MONOTONIC."""

    def compute(self, kernels: int, ms: float) -> None:
        """Launches kernels that take `ms` each."""
        work = ctypes.c_uint64(round(ms * _MS))
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(work))
        for _ in range(kernels):
            self._cuda.cudaLaunchKernel(
                ctypes.c_void_p(1), _Dim3(1, 1, 1), _Dim3(1, 1, 1), arguments, ctypes.c_size_t(0), self._computing
            )

    def copy(self, ms: float) -> None:
        """Copies to the device. Takes `ms`."""
        size = ctypes.c_size_t(round(ms * _MS) * 16)  # driver.c copies 16 bytes per ns
        self._cuda.cudaMemcpy(None, None, size, 1)

    def all_reduce(self, ms: float) -> None:
        """Issues a collective that takes `ms`."""
        last = self.in_flight[-1][1] if self.in_flight else 0
        begin = max(time.monotonic_ns(), last)
        count = ctypes.c_size_t(round(ms * _MS))  # nccl.c takes 1 ns per byte
        self._nccl.ncclAllReduce(None, None, count, 0, 0, self._communicator, self._communicating)
        self.in_flight.append((begin, begin + round(ms * _MS)))

    def wait_for_collectives(self) -> None:
        """Waits for the stream of collectives."""
        self._cuda.cudaStreamSynchronize(self._communicating)

    def wait_for_kernels(self) -> None:
        """Waits for the stream of kernels."""
        self._cuda.cudaStreamSynchronize(self._computing)

    def wait(self) -> None:
        """Waits for all streams."""
        self._cuda.cudaDeviceSynchronize()
