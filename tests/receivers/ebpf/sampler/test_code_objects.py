"""The file and the name of a function are read from outside: real interpreters of each version."""

import json
import subprocess
from pathlib import Path

import pytest

from otel_zernel_receivers.ebpf.sampler.code_objects import CodeObject, read_code
from otel_zernel_receivers.ebpf.sampler.layouts import Codes
from tests.receivers.ebpf.sampler.pythons import MINORS, python_of
from tests.receivers.ebpf.sampler.test_runtimes import runtime_of

PROGRAM = """
import json, sys

class Saver:
    def save(self): pass

codes = [Saver.save.__code__, sys._getframe().f_code, json.dumps.__code__]
print(json.dumps([[id(one), one.co_filename, getattr(one, "co_qualname", one.co_name)] for one in codes]), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("name", ["train.py", "entraînement.py", "训练.py", "🚂.py"])
@pytest.mark.parametrize("minor", MINORS)
def test_the_code_objects_of_each_version_of_python_are_read(minor: int, name: str, tmp_path: Path) -> None:
    program = tmp_path / name
    program.write_text(PROGRAM)
    command = [python_of(minor), str(program)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        codes = json.loads(process.stdout.readline())
        runtime = runtime_of(process.pid)
        assert runtime
        for address, *texts in codes:
            assert read_code(process.pid, address, runtime.layout.codes) == CodeObject(*texts)
        process.communicate()


def test_memory_that_is_no_code_object_has_no_name() -> None:
    import ctypes
    import os

    numbers = ctypes.create_string_buffer(b"\xff" * 512)
    with pytest.raises(OSError, match="Bad address"):
        read_code(os.getpid(), ctypes.addressof(numbers), Codes(112, True, 48, 72))
    texts = (ctypes.c_uint64 * 64)(*[ctypes.addressof(numbers)] * 64)
    assert read_code(os.getpid(), ctypes.addressof(texts), Codes(112, True, 48, 72)) is None
