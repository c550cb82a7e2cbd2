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
_DISTANCE = 64
"""Bytes from one copy to the other: they lie in different cache lines."""

PROBE = Probe("calibration", Operation.CALIBRATION)
ENTRY_PROBE = Probe("calibration", Operation.CALIBRATION, kind=CallKind.WORK_WAIT_END)
"""A probe that needs no return. It costs as much as a session's probe on a call that is not counted."""


class OwnFunction:
    """Machine code in an unnamed file (memfd), twice: one copy to be probed, and one to compare it with.

    Only this process can open its path, but the probe is on the file itself.
    """

    offset = 0

    def __enter__(self) -> Self:
        code = _CODE[os.uname().machine]
        self._fd = os.memfd_create("otel-zernel-calibration")
        os.write(self._fd, code.ljust(_DISTANCE, bytes(1)) + code)
        # The kernel puts probes into private mappings only.
        self._memory = mmap.mmap(
            self._fd, _DISTANCE + len(code), flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC
        )
        address = np.frombuffer(self._memory, np.uint8).ctypes.data
        function = ctypes.CFUNCTYPE(ctypes.c_int)
        self._probed, self._bare = function(address), function(address + _DISTANCE)
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

    def call(self, times: int) -> float:
        """Calls the function `times` times. Returns the average duration of a call from Python, ns."""
        function = self._probed
        began = time.perf_counter_ns()
        for _ in range(times):
            function()
        return (time.perf_counter_ns() - began) / times

    def added_between_work(self, times: int) -> float:
        """The CPU time that the probe adds to a call with other work before and after it, ns.

        It includes the work after the call, which the probe makes slower. Calls both copies `times` times, in turns, so
        that drift affects both equally, and compares the means of the middle halves.
        """
        probed, bare = _Durations(), _Durations()
        for _ in range(times):
            for function, durations in ((self._probed, probed), (self._bare, bare)):
                began = time.thread_time_ns()
                function()
                _work()
                durations.append(time.thread_time_ns() - began)
        return probed.middle - bare.middle


class _Durations(list[int]):
    @property
    def middle(self) -> float:
        """The mean of the middle half: other programs disturb some calls."""
        quarter = len(self) // 4
        return statistics.fmean(sorted(self)[quarter : len(self) - quarter])


_RECORD = {f"key {number}": [number, str(number), number / 7] for number in range(32)}


def _work() -> None:
    """Some 50 us of varied code, which replaces a probe's code and data in the caches and predictors of the CPU."""
    text = json.dumps(_RECORD)
    json.loads(re.sub("k(e)y", "x", text))
    zlib.crc32(text.encode())
