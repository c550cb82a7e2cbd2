"""Freed memory is given back."""

import platform

import pytest

from otel_zernel.runtime.memory import resident_memory
from otel_zernel_libraries.freed_memory import give_back_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps freed memory, and gives it back")
def test_freed_memory_below_memory_in_use_is_given_back() -> None:
    blocks = [bytearray(b"x" * 100_000) for _ in range(500)]
    kept = blocks[-1]
    blocks.clear()
    before = resident_memory()
    give_back_memory()
    assert before - resident_memory() > 20_000_000, len(kept)
