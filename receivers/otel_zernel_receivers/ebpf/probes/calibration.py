"""A function of the collector itself to probe. It shows whether probes work here, and how much they add to a call.

The recorded duration of a call includes part of the probe: a function that does nothing takes 0.8 us or more. This
function measures that floor.
"""

import ctypes
import json
import mmap
import os
import re
import statistics
import time
import zlib
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import numpy as np

from otel_zernel_receivers.ebpf.probes.calls import CallKind, Operation
from otel_zernel_receivers.ebpf.probes.catalogue import Probe

# Functions that return 0 and begin like typical probed functions. On arm64 the kernel single-steps `stp`.
_CODE = {
    "x86_64": bytes.fromhex("55 31c0 5d c3"),  # push rbp; xor eax, eax; pop rbp; ret
    # stp x29, x30, [sp, #-16]!; mov w0, #0; ldp x29, x30, [sp], #16; ret
    "aarch64": bytes.fromhex("fd7bbfa9 00008052 fd7bc1a8 c0035fd6"),
}

PROBE = Probe("calibration", Operation.CALIBRATION)
ENTRY_PROBE = Probe("calibration", Operation.CALIBRATION, kind=CallKind.WORK_WAIT_END)
"""A probe that needs no return. It costs as much as a session's probe on a call that is not counted."""


class OwnFunction:
    """Machine code in an unnamed file (memfd).

    Only this process can open its path, but the probe is on the file itself.
    """

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
        """The path for attaching probes."""
        return f"/proc/self/fd/{self._fd}"

    def call_between_work(self, times: int) -> float:
        """Calls the function `times` times, with much other work before each call.

        Returns the median duration of a call from Python, ns.
        """
        function = ctypes.CFUNCTYPE(ctypes.c_int)(self._address)
        durations = []
        for _ in range(times):
            _work(_LARGE)
            began = time.perf_counter_ns()
            function()
            durations.append(time.perf_counter_ns() - began)
        return statistics.median(durations)

    def call_with_work(self, times: int) -> tuple[float, float]:
        """Calls the function `times` times, with a little other work before each call.

        Returns the average CPU time of a call, and that of a call with its work, both from Python, ns.
        """
        function = ctypes.CFUNCTYPE(ctypes.c_int)(self._address)
        calls, began = 0, time.thread_time_ns()
        for _ in range(times):
            _work(_SMALL)
            before = time.thread_time_ns()
            function()
            calls += time.thread_time_ns() - before
        return calls / times, (time.thread_time_ns() - began) / times

    def call(self, times: int) -> float:
        """Calls the function `times` times. Returns the average duration of a call from Python, ns."""
        function = ctypes.CFUNCTYPE(ctypes.c_int)(self._address)
        began = time.perf_counter_ns()
        for _ in range(times):
            function()
        return (time.perf_counter_ns() - began) / times


_SMALL, _LARGE = ({f"key {number}": [number, str(number), number / 7] for number in range(size)} for size in (8, 64))
"""For about 10 and 100 us of work."""


def _work(record: Mapping[str, object]) -> None:
    """Varied code, which replaces a probe's code and data in the caches and predictors of the CPU."""
    text = json.dumps(record)
    json.loads(re.sub("k(e)y", "x", text))
    zlib.crc32(text.encode())
