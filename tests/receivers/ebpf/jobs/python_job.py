"""A Python program that does what a test names, between two marks of its main thread."""

import sys
from contextlib import AbstractContextManager

from tests.receivers.ebpf.jobs.operator_runs import Gap, difference, snapshots_of
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.talking import Talker, talking
from tests.receivers.ebpf.watching import Watch, spans_of

_MARKS = """
import ctypes, sys
backward = ctypes.PyDLL(f"{sys.argv[1]}/libtorch_python.so").backward
"""
_LOOP = """
print("ready", flush=True)
for name in sys.stdin:
    function = globals()[name.strip()]
    backward()
    if prepared := function():
        backward()
        prepared()
    backward()
    print("done", flush=True)
"""


def python_job(standin: Standin, functions: str, *arguments: str) -> AbstractContextManager[Talker]:
    """The program has these functions. One that prepares something returns the function to observe. Its arguments are
    `sys.argv[2:]`."""
    return talking(sys.executable, "-c", _MARKS + functions + _LOOP, standin.folder, *arguments)


def gap_of(watch: Watch, process: Talker, name: str) -> Gap:
    """What the thread did in the function."""
    assert process.ask(name) == "done"
    spans = sorted(spans_of(watch.read(), process.pid), key=lambda span: span.end_time_unix_nano)
    watch.taken()
    before, after = spans[-2:]
    return difference(snapshots_of(before)[1], snapshots_of(after)[0])
