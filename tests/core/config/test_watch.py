"""A change of any file that a configuration was read from is noticed, however the file was changed."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_zernel.config.load import load
from otel_zernel.config.watch import FileWatch, ReadFiles
from otel_zernel.errors import ConfigError

LATER = 10_000_000_000_000_000_000
"""A clock so late that no file is young."""


def read(path: Path) -> tuple[ReadFiles, FileWatch]:
    files = ReadFiles()
    load([str(path)], [], {}, files)
    return files, FileWatch(files, lambda: LATER)


def rewritten(path: Path) -> None:
    path.write_text("a: 2")


def replaced(path: Path) -> None:
    (path.parent / "new").write_text("a: 2")
    (path.parent / "new").replace(path)


def removed(path: Path) -> None:
    path.unlink()


def unreadable(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\xfa")


def replaced_with_the_same_size_and_time(path: Path) -> None:
    before = path.stat()
    replaced(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("change", [rewritten, replaced, removed, unreadable, replaced_with_the_same_size_and_time])
def test_a_changed_file_is_noticed_once_it_was_looked_at_before(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 1")
    files, watch = read(path)
    assert watch.changed() == {}
    change(path)
    assert list(watch.changed()) == [str(path)]
    files.digests.update(watch.changed())
    assert watch.changed() == {}


def test_a_file_that_changed_before_the_first_look_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 1")
    _, watch = read(path)
    path.write_text("a: 2")
    assert list(watch.changed()) == [str(path)]


def test_a_young_file_is_read_even_if_its_size_and_times_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 1")
    files = ReadFiles()
    load([str(path)], [], {}, files)
    watch = FileWatch(files, lambda: path.stat().st_mtime_ns)
    assert watch.changed() == {}
    before = path.stat()
    with path.open("r+") as file:
        file.write("a: 2")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert list(watch.changed()) == [str(path)]


def test_the_files_of_references_are_watched_also_those_that_are_missing(tmp_path: Path) -> None:
    path, secret, missing = tmp_path / "config.yaml", tmp_path / "token", tmp_path / "missing"
    secret.write_text("one")
    path.write_text(f"a: ${{file:{secret}}}\nb: ${{file:{missing}}}")
    files = ReadFiles()
    with pytest.raises(ConfigError):
        load([str(path)], [], {}, files)
    watch = FileWatch(files, lambda: LATER)
    assert watch.changed() == {}
    missing.write_text("here")
    secret.write_text("two")
    assert sorted(watch.changed()) == [str(missing), str(secret)]


def test_a_touched_file_with_the_same_content_has_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: 1")
    _, watch = read(path)
    os.utime(path, (1, 1))
    assert watch.changed() == {}


def test_a_pipe_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    files = ReadFiles(lambda path: "a: 1")
    load([str(path)], [], {}, files)
    assert FileWatch(files, lambda: LATER).changed() == {}
