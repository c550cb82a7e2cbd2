"""The line of every instruction is found from outside as Python itself gives it: real interpreters of each version."""

import ctypes
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import CodeType

import pytest

from otel_zernel_libraries.training.library_folders import LibraryFolders
from otel_zernel_libraries.training.stacks import CodeLine
from otel_zernel_receivers.ebpf.sampler.code_lines import UNKNOWN_LINE, CodeLines
from otel_zernel_receivers.ebpf.sampler.layouts import LAYOUTS, Layout, LineForm
from otel_zernel_receivers.ebpf.sampler.line_tables import LineTable
from otel_zernel_receivers.ebpf.tables.samples import Place
from tests.receivers.ebpf.sampler.pythons import MINORS, python_of
from tests.receivers.ebpf.sampler.test_runtimes import runtime_of
from tests.receivers.ebpf.talking import started

FOLDERS = LibraryFolders()
PROGRAM = """
import functools
import json
import sys
import types


def decorated(function):
    return functools.wraps(function)(lambda *args: function(*args))


@decorated
@functools.lru_cache(
    maxsize=None,
)
def calls(
    first=1,
    second=2,
):
    try:
        result = max(
            first,
            second,
            min(
                first,
                len(
                    "text"
                ),
            ),
        )
    except (
        ValueError,
        TypeError,
    ):
        result = None
    finally:
        first = 0
    with open(
        __file__
    ) as file:
        file.read()
    for number in range(
        3
    ):
        if number == 1:
            continue
        elif number == 2: break
    else:
        result = [
            item
            for item in (1, 2)
            if item
        ]
    return (
        result,
        {key: value
         for key, value in {}.items()},
        lambda: (
            first,
            second,
        ),
    )


def größe_des_模型(数据):
    return [
        数据 ** 2,
        f"{数据}"
        f"{数据!r}",
    ]


def generator():
    received = yield 1
    while received:
        received = (
            yield from iter(
                [1, 2]
            )
        )


async def asynchronous(source):
    async with source:
        return [
            item async for item in source
        ]


class Trainer:
    "A class."

    rate = 0.1

    def fit(self):
        def inner():

            # far away



            return self.rate

        return inner


def far():
    first = 1
FILLER
    return first


exec(compile("def made():\\n    x = 1\\n\\n    return x\\n", "<ipython-input-3>", "exec"))


def all_codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from all_codes(constant)


def lines_of(code):
    if hasattr(code, "co_lines"):
        ranges = list(code.co_lines())
    else:
        import dis

        begins = [*dis.findlinestarts(code), (len(code.co_code), None)]
        ranges = [(begin, end, line) for (begin, line), (end, _) in zip(begins, begins[1:])]
    return [[offset, line or 0] for begin, end, line in ranges for offset in range(begin, end, 2)]


roots = sys._getframe().f_code, made.__code__, json.dumps.__code__, json.JSONDecoder.raw_decode.__code__
codes = {id(code): code for root in roots for code in all_codes(root)}
names = {address: getattr(code, "co_qualname", code.co_name) for address, code in codes.items()}
print(json.dumps([[address, code.co_filename, names[address], lines_of(code)] for address, code in codes.items()]))
sys.stdout.flush()
sys.stdin.read()
""".replace("FILLER", "\n" * 300)
"""Says the address, the file and the name of its functions, and the line of each instruction; 0 if it has none."""


def place_of(address: int, offset: int, layout: Layout) -> Place:
    """As the kernel gives it."""
    unit = 2 if layout.codes.line_form is LineForm.RANGES else 1
    start = address + layout.codes.instructions if layout.codes.instructions else 0
    return Place(address, (start + offset // unit) % (1 << (64 if start else 32)))


@pytest.mark.parametrize("minor", MINORS)
def test_the_line_of_every_instruction_is_as_python_gives_it(minor: int, tmp_path: Path) -> None:
    program = tmp_path / "entraînement.py"
    program.write_text(PROGRAM)
    with started(python_of(minor), program) as process:
        codes = json.loads(process.line())
        runtime = runtime_of(process.pid)
        assert runtime
        lines = CodeLines()
        for address, file, name, offsets in codes:
            places = [place_of(address, offset, runtime.layout) for offset, _ in offsets]
            expected = [CodeLine(file, name, line) for _, line in offsets]
            assert list(lines.of(process.pid, runtime.layout.codes, FOLDERS, places)) == expected
    files, names = {file for _, file, *_ in codes}, {name.rpartition(".")[2] for _, _, name, _ in codes}
    assert "<ipython-input-3>" in files
    assert {"größe_des_模型", "<lambda>", "far", "inner", "made", "<module>"} <= names
    assert sum(len(offsets) for *_, offsets in codes) > 300


def own_code(text: str) -> tuple[CodeType, Layout]:
    """A code object of this process."""
    version = sys.version_info[:2]
    if version not in LAYOUTS:
        pytest.skip("the layout of this Python is in its memory")
    return compile(text, "<test>", "exec", dont_inherit=True), LAYOUTS[version]


def test_a_frame_before_its_start_is_in_the_first_line() -> None:
    code, layout = own_code("\n\nvalue = 1\n")
    place = place_of(id(code), -2, layout)
    assert CodeLines().of(os.getpid(), layout.codes, FOLDERS, [place]) == (CodeLine("<test>", "<module>", 1),)


def test_memory_that_another_code_object_uses_now_has_its_line() -> None:
    lines = CodeLines()
    code, layout = own_code("first = 1")
    nested = own_code("\n\ndef second():\n    pass\n")[0].co_consts[0]
    memory = ctypes.create_string_buffer(1024)
    place = place_of(ctypes.addressof(memory), 2, layout)
    ctypes.memmove(memory, id(code), sys.getsizeof(code))
    assert lines.of(os.getpid(), layout.codes, FOLDERS, [place])[0].line == 1
    ctypes.memmove(memory, id(nested), sys.getsizeof(nested))
    assert lines.of(os.getpid(), layout.codes, FOLDERS, [place])[0].function == "second"


@pytest.mark.parametrize("layout", LAYOUTS.values())
def test_places_without_code_have_an_unknown_line(layout: Layout) -> None:
    numbers = (ctypes.c_uint64 * 512)(*[random.Random(7).randrange(1 << 64) for _ in range(512)])
    places = [Place(8, 8), Place(ctypes.addressof(numbers), 8), Place(0, 0)]
    assert CodeLines().of(os.getpid(), layout.codes, FOLDERS, places) == (UNKNOWN_LINE,) * 3


def test_a_process_that_has_ended_is_an_error() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    with pytest.raises(ProcessLookupError):
        CodeLines().of(process.pid, LAYOUTS[3, 11].codes, FOLDERS, [Place(4096, 4096)])


@pytest.mark.parametrize("form", LineForm)
def test_a_table_of_any_bytes_gives_some_line(form: LineForm) -> None:
    dice = random.Random(11)
    for _ in range(500):
        table = dice.randbytes(dice.randrange(200))
        assert 0 <= LineTable(form, table, dice.randrange(-(1 << 31), 1 << 31)).line_at(dice.randrange(400)) < 1 << 31


def test_a_number_without_an_end_is_no_line() -> None:
    assert LineTable(LineForm.LOCATIONS, bytes([0x80 | 13 << 3]) + b"\xff" * 200_000, 1).line_at(0) == 0


@pytest.mark.parametrize("form", LineForm)
def test_a_frame_before_its_start_has_no_negative_line(form: LineForm) -> None:
    assert LineTable(form, b"", -5).line_at(-2) == 0


def test_a_call_reads_few_large_tables_and_the_next_one_reads_others() -> None:
    code, layout = own_code("\n".join(f"value = {number}" for number in range(3000)))
    size = sys.getsizeof(code)
    copies = [ctypes.create_string_buffer(ctypes.string_at(id(code), size)) for _ in range(200)]
    last = len(code.co_code) - 2
    places = [place_of(ctypes.addressof(copy), last, layout) for copy in copies]
    lines = CodeLines()
    first = [line.line for line in lines.of(os.getpid(), layout.codes, FOLDERS, places)]
    known = sum(line == 3000 for line in first)
    assert 0 < known < len(places)
    assert set(first) == {0, 3000}
    assert known * len(code.co_linetable) < 600_000
    again = [line.line for line in lines.of(os.getpid(), layout.codes, FOLDERS, places)]
    assert sum(line == 3000 for line in again) > known
