"""The file and the name of a function are read from outside: real interpreters of each version."""

import ctypes
import json
import os
from pathlib import Path

import pytest

from otel_zernel_receivers.ebpf.sampler.code_objects import CodeObject, read_code, read_heads
from otel_zernel_receivers.ebpf.sampler.layouts import LAYOUTS, Layout
from tests.receivers.ebpf.sampler.pythons import MINORS, python_of
from tests.receivers.ebpf.sampler.test_runtimes import runtime_of
from tests.receivers.ebpf.talking import started

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
    with started(python_of(minor), program) as process:
        codes = json.loads(process.line())
        runtime = runtime_of(process.pid)
        assert runtime
        heads = read_heads(process.pid, [address for address, *_ in codes], runtime.layout.codes)
        for head, (_, *texts) in zip(heads, codes, strict=True):
            assert head
            assert read_code(process.pid, head, runtime.layout.codes) == CodeObject(*texts)


@pytest.mark.parametrize("layout", LAYOUTS.values())
def test_memory_that_is_no_code_object_has_no_name(layout: Layout) -> None:
    numbers = ctypes.create_string_buffer(b"\xff" * 512, 512)
    texts = (ctypes.c_uint64 * 64)(*[ctypes.addressof(numbers)] * 64)
    heads = read_heads(os.getpid(), [8, ctypes.addressof(numbers), ctypes.addressof(texts)], layout.codes)
    assert heads[0] is None
    assert [read_code(os.getpid(), head, layout.codes) for head in heads if head] == [None, None]


def test_the_end_of_a_long_file_name_is_kept() -> None:
    code = compile("", "/very" * 150 + "/train.py", "exec")
    layout = LAYOUTS[3, 11].codes
    (head,) = read_heads(os.getpid(), [id(code)], layout)
    assert head
    read = read_code(os.getpid(), head, layout)
    assert read
    assert (len(read.file), read.file[-14:]) == (512, "/very/train.py")
