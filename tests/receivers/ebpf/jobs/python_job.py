"""A Python program that does what a test names, between two marks of its main thread."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.receivers.ebpf.jobs.operator_runs import Gap, difference, snapshots_of
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import Watch, spans_of

Job = subprocess.Popen[str]

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


@contextmanager
def python_job(standin: Standin, functions: str, *arguments: str) -> Iterator[Job]:
    """The program has these functions. One that prepares something returns the function to observe. Its arguments are
    `sys.argv[2:]`."""
    command = [sys.executable, "-c", _MARKS + functions + _LOOP, str(standin.cudart.parent), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process
        process.communicate()


def gap_of(watch: Watch, process: Job, name: str) -> Gap:
    """What the thread did in the function."""
    assert process.stdin
    assert process.stdout
    print(name, file=process.stdin)
    assert process.stdout.readline() == "done\n"
    spans = sorted(spans_of(watch.read(), process.pid), key=lambda span: span.end_time_unix_nano)
    watch.taken()
    before, after = spans[-2:]
    return difference(snapshots_of(before)[1], snapshots_of(after)[0])
