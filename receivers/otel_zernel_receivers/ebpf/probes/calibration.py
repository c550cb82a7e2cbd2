"""A function of our own to probe: it tells whether probes work here, and what they add to each call.

What is recorded of a call includes part of the probe itself: a function that does nothing reads 0.8 us and more. That
floor is measured on such a function.
"""

import ctypes
import mmap
import os
import time
from types import TracebackType
from typing import Self

import numpy as np

from otel_zernel_receivers.ebpf.probes.calls import CallKind, Operation
from otel_zernel_receivers.ebpf.probes.catalogue import Probe

# Functions that return 0, beginning as those that are probed do. On arm64 the kernel steps over `stp`.
_CODE = {
    "x86_64": bytes.fromhex("55 31c0 5d c3"),  # push rbp; xor eax, eax; pop rbp; ret
    # stp x29, x30, [sp, #-16]!; mov w0, #0; ldp x29, x30, [sp], #16; ret
    "aarch64": bytes.fromhex("fd7bbfa9 00008052 fd7bc1a8 c0035fd6"),
}

PROBE = Probe("calibration", Operation.CALIBRATION)
ENTRY_PROBE = Probe("calibration", Operation.CALIBRATION, kind=CallKind.WORK_WAIT_END)
"""One that is done with the call at its entry, as a session is with a call that it does not count."""


class OwnFunction:
    """Machine code in a file without a name. Its path is good in this process alone, but the probe is on the file."""

    offset = 0

    def __enter__(self) -> Self:
        code = _CODE[os.uname().machine]
        self._fd = os.memfd_create("otel-zernel-calibration")
        os.write(self._fd, code)
        # The kernel puts probes into private mappings only.
        self._memory = mmap.mmap(self._fd, len(code), flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)
        self._address = np.frombuffer(self._memory, np.uint8).ctypes.data
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._memory.close()
        os.close(self._fd)

    @property
    def path(self) -> str:
        """To attach probes to."""
        return f"/proc/self/fd/{self._fd}"

    def call(self, times: int) -> float:
        """Calls the function so many times; returns the ns that a call took from here, on average."""
        function = ctypes.CFUNCTYPE(ctypes.c_int)(self._address)
        began = time.perf_counter_ns()
        for _ in range(times):
            function()
        return (time.perf_counter_ns() - began) / times
