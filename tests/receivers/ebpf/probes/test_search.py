"""Searching a file delays neither the readings nor, without limit, the files of other jobs."""

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from otel_zernel_receivers.ebpf.binaries.symbol_names import UnreadableElf
from otel_zernel_receivers.ebpf.probes.libraries import AttachPoints
from otel_zernel_receivers.ebpf.probes.search import MOST, PlaceSearch
from otel_zernel_receivers.ebpf.processes.files.file_identity import FileIdentity
from otel_zernel_receivers.ebpf.processes.files.mappings import LocatedFile, Mapping
from otel_zernel_receivers.ebpf.processes.files.used_files import MappedLibrary, UsedFile

NOTHING = AttachPoints((), (), (), {}, is_stripped=False)


class SlowFind:
    """A search that waits for the test, except in files that contain `fast`."""

    def __init__(self) -> None:
        self.go_on = Event()

    def __call__(self, fd: int, *_: object, **__: object) -> AttachPoints:
        content = os.pread(fd, 10, 0)
        if content == b"damaged":
            raise UnreadableElf("damaged")
        if content != b"fast":
            assert self.go_on.wait(60)
        return NOTHING


@pytest.fixture
def find() -> Iterator[SlowFind]:
    find = SlowFind()
    yield find
    find.go_on.set()


def used(path: Path, number: int) -> UsedFile:
    """A file as a scan finds it. Only its identity matters here."""
    mapping: Any = Mapping.__new__(Mapping)
    return UsedFile(MappedLibrary.CUDART, mapping, LocatedFile(FileIdentity(1, number), str(path)))


def begin(search: PlaceSearch, folder: Path, content: str, number: int = 1) -> None:
    path = folder / f"{number}"
    path.write_text(content)
    fd = os.open(path, os.O_RDONLY)
    search.begin(used(path, number), fd)
    os.close(fd)


def test_a_slow_file_is_not_waited_for_and_comes_later(tmp_path: Path, find: SlowFind) -> None:
    search = PlaceSearch(at_any_cost=False, find=find)
    begin(search, tmp_path, "fast", 1)
    begin(search, tmp_path, "slow", 2)
    first: list[FileIdentity] = []
    while not first:
        first += [searched.used.identity for searched in search.finished(0.1)]
    assert first == [FileIdentity(1, 1)]
    assert FileIdentity(1, 2) in search
    find.go_on.set()
    assert [searched.used.identity for searched in search.finished(60)] == [FileIdentity(1, 2)]
    search.close()


def test_the_number_of_open_files_is_limited_and_all_are_closed(tmp_path: Path, find: SlowFind) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    search = PlaceSearch(at_any_cost=False, find=find)
    for number in range(MOST):
        assert not search.is_full
        begin(search, tmp_path, "slow", number)
    assert search.is_full
    assert not list(search.finished(0))
    find.go_on.set()
    search.close()
    assert set(Path("/proc/self/fd").iterdir()) <= before


def test_the_error_of_a_damaged_file_is_raised_where_its_result_is_read(tmp_path: Path, find: SlowFind) -> None:
    search = PlaceSearch(at_any_cost=False, find=find)
    begin(search, tmp_path, "damaged")
    (searched,) = search.finished(60)
    with pytest.raises(UnreadableElf, match="damaged"):
        searched.result()
    search.close()
    search.close()
