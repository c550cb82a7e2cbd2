"""The sampler's clock: a software event of each CPU, which the kernel raises some times a second."""

import ctypes
import errno
import os
import struct
from contextlib import ExitStack

from otel_zernel_receivers.ebpf.kernel.libbpf import Link, Program
from otel_zernel_receivers.ebpf.kernel.system_calls import PERF_EVENT_OPEN

_ATTRIBUTES = struct.Struct("<IIQQQQQQII")
"""The first version of `struct perf_event_attr`, 64 bytes."""
_PERF_TYPE_SOFTWARE = 1
_PERF_COUNT_SW_CPU_CLOCK = 0
_EXCLUDE_IDLE, _FREQUENCY = 1 << 7, 1 << 10
_EVERY_PROCESS, _NO_GROUP, _CLOSE_ON_EXEC = -1, -1, 8


def attach_clock(program: Program, frequency: int) -> Link:
    """Runs the program so many times a second on each CPU that is online and not idle. Raises OSError."""
    with ExitStack() as links:
        for cpu in range(os.sysconf("SC_NPROCESSORS_CONF")):
            try:
                event = _clock_of(cpu, frequency)
            except OSError as error:
                if error.errno != errno.ENODEV:  # offline
                    raise
                continue
            try:
                links.callback(program.attach_event(event).close)
            except BaseException:
                os.close(event)
                raise
        return Link(links.pop_all().close)


def _clock_of(cpu: int, frequency: int) -> int:
    size, flags = _ATTRIBUTES.size, _FREQUENCY | _EXCLUDE_IDLE
    attributes = _ATTRIBUTES.pack(_PERF_TYPE_SOFTWARE, size, _PERF_COUNT_SW_CPU_CLOCK, frequency, 0, 0, flags, 0, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    number = PERF_EVENT_OPEN.numbers[os.uname().machine]
    arguments = (
        ctypes.c_long(_EVERY_PROCESS),
        ctypes.c_long(cpu),
        ctypes.c_long(_NO_GROUP),
        ctypes.c_long(_CLOSE_ON_EXEC),
    )
    event: int = libc.syscall(ctypes.c_long(number), attributes, *arguments)
    if event < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return event
