"""Code that a process has copied to memory without a file is not probed, and counted as skipped."""

import sys
from pathlib import Path

import pytest

from otel_zernel_receivers.ebpf.processes.scanner import Reason, Scanner, Selection
from tests.receivers.ebpf.processes.fake_proc import FakeProc
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.talking import talking

CUDART = "/usr/lib/libcudart.so.12"


@pytest.mark.parametrize(
    ("code", "is_replaced"),
    [
        ("7000-8000 r-xp 00000000 00:00 0", True),
        ("7000-8000 r-xp 00000000 00:00 0 [anon:text]", True),
        ("7000-8000 r-xp 00000000 00:0f 77 /anon_hugepage (deleted)", True),
        ("7000-7800 r-xp 00001000 fd:00 {inode} {path}\n7800-8000 r-xp 00000000 00:00 0", True),
        ("7000-8000 rw-p 00000000 00:00 0", False),
        ("5000-5800 r-xp 00000000 00:00 0", False),
        ("", False),
    ],
)
def test_code_that_was_copied_to_memory_is_counted_as_skipped(tmp_path: Path, code: str, is_replaced: bool) -> None:
    proc = FakeProc(tmp_path)
    library = proc.add(7, [CUDART]) / CUDART[1:]
    names = {"inode": library.stat().st_ino, "path": CUDART}
    maps = "6000-7000 r--p 00000000 fd:00 {inode} {path}\n" + code + "\n8000-9000 r--p 00002000 fd:00 {inode} {path}\n"
    (proc.root / "7/maps").write_text(maps.format(**names).replace("\n\n", "\n"))
    assert Scanner(proc.root).scan().skipped == ({Reason.REPLACED_CODE: 1} if is_replaced else {})


_REPLACES_ITS_CODE = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
libc = ctypes.CDLL(None)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
with open("/proc/self/maps") as maps:
    (code,) = [line.split()[0] for line in maps if sys.argv[1] in line and "x" in line.split()[1]]
begin, end = (int(address, 16) for address in code.split("-"))
copy = libc.mmap(None, ctypes.c_size_t(end - begin), 7, 0x22, -1, 0)
ctypes.memmove(copy, begin, end - begin)
libc.mprotect(ctypes.c_void_p(copy), ctypes.c_size_t(end - begin), 5)
size = ctypes.c_size_t(end - begin)
assert libc.mremap(ctypes.c_void_p(copy), size, size, 3, ctypes.c_void_p(begin)) == begin
print("ready", flush=True)
sys.stdin.readline()
"""
"""Copies its library's code into memory without a file, as programs for huge pages do."""


@pytest.mark.parametrize(("job", "count"), [("train", 1), ("serve", 0)])
def test_a_selected_process_that_replaces_its_code_is_skipped_and_counted(
    standin: Standin, job: str, count: int
) -> None:
    with talking(sys.executable, "-c", _REPLACES_ITS_CODE, standin.cudart, environment={"JOB": job}):
        scan = Scanner(selection=Selection(environment={"JOB": "train"})).scan()
    assert scan.skipped.get(Reason.REPLACED_CODE, 0) == count
