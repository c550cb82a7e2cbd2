"""Globs find what Python's glob finds. A folder that cannot be listed is a problem, not an empty folder."""

import glob
import os
from pathlib import Path

import pytest

from otel_zernel_libraries.files.listing import list_files

TREE = (
    "a.csv",
    "b.csv",
    ".hidden.csv",
    "c.txt",
    "x/a.csv",
    "x/.y/a.csv",
    "x/y/a.csv",
    "x/y/z/b.csv",
    "[odd].csv",
    "w/",
)
PATTERNS = (
    "*.csv",
    "?.csv",
    "[ab].csv",
    "**/*.csv",
    "x/*/a.csv",
    "*/a.csv",
    "x/**",
    ".*.csv",
    "**/y/*",
    "none/*.csv",
    "*",
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in TREE:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir() if name.endswith("/") else path.write_text(name)
    return tmp_path


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_glob_finds_what_pythons_glob_finds(tree: Path, pattern: str) -> None:
    expected = {name for name in glob.glob(str(tree / pattern), recursive=True) if Path(name).is_file()}  # noqa: PTH207
    listing = list_files([str(tree / pattern)])
    assert listing.files.keys() == expected
    assert list(listing.files) == sorted(listing.files)
    assert not listing.problems


def test_a_relative_pattern_is_relative_to_the_working_folder(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    assert list(list_files(["x/*.csv", "b.csv"]).files) == ["x/a.csv", "b.csv"]


def test_each_file_is_listed_once_and_excluded_ones_never(tree: Path) -> None:
    patterns = [str(tree / name) for name in ("b.csv", "*.csv", "missing.csv", "[odd].csv")]
    listing = list_files(patterns, [str(tree / "a.*")])
    assert [Path(name).name for name in listing.files] == ["b.csv", "[odd].csv"]


def test_a_pipe_is_listed_only_if_it_is_named(tree: Path) -> None:
    os.mkfifo(tree / "pipe.csv")
    assert str(tree / "pipe.csv") not in list_files([str(tree / "*.csv")]).files
    assert list(list_files([str(tree / "pipe.csv")]).files) == [str(tree / "pipe.csv")]


def test_a_folder_that_cannot_be_listed_is_a_problem_and_the_others_are_listed(tree: Path) -> None:
    (tree / "loop").symlink_to(tree / "loop")
    listing = list_files([str(tree / "loop" / "*.csv"), str(tree / "loop" / "a.csv"), str(tree / "a.csv")])
    assert list(listing.files) == [str(tree / "a.csv")]
    assert sorted(map(str, listing.problems.values())) == [
        f"cannot examine {tree}/loop/a.csv: Too many levels of symbolic links",
        f"cannot list {tree}/loop: Too many levels of symbolic links",
    ]


def test_a_missing_folder_is_no_problem(tree: Path) -> None:
    listing = list_files([str(tree / "missing" / "*.csv"), str(tree / "a.csv" / "*.csv")])
    assert not listing.files
    assert not listing.problems
