"""Following files: how often they are looked at, and where reading goes on."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.testing import make_context
from otel_zernel_libraries.files.changes import FolderChanges
from otel_zernel_libraries.files.following import Follower
from otel_zernel_libraries.files.growing import GRACE, GrowingFile
from otel_zernel_libraries.files.positions import MAX_CLOSED, Position, Positions
from otel_zernel_libraries.files.sources import Problems
from tests.core.engine.journals import MemoryValues


@dataclass
class Bytes:
    """Bytes as they were read."""

    data: bytes
    end: int
    resume: Mapping[str, Any]


def pieces_of(file: GrowingFile, resume: Mapping[str, Any] | None) -> Iterator[Bytes | None]:
    count = resume["count"] if resume else 0
    while (data := file.read(100)) != b"":
        count += 1
        yield Bytes(data, file.offset, {"count": count}) if data else None


class Watch:
    """A monotonic clock. Each call lasts `cost` s, as if the listing between two calls did."""

    def __init__(self, cost: float = 0) -> None:
        self.now = 0.0
        self.cost = cost

    def __call__(self) -> float:
        self.now += self.cost
        return self.now


class Following:
    """A follower of everything in a folder."""

    def __init__(
        self,
        folder: Path,
        watch: Watch | None = None,
        values: MemoryValues | None = None,
        changes: FolderChanges | None = None,
        *,
        from_end: bool = False,
        pattern: str = "*",
    ) -> None:
        self.watch = watch or Watch()
        problems = Problems(make_context().logger)
        self.positions = Positions(problems, values)
        self.follower = Follower(
            [str(folder / pattern)], pieces_of, self.positions, problems, self.watch, changes, from_end=from_end
        )
        self._pieces = self.follower.pieces()

    async def read(self) -> bytes:
        """All new bytes. Their positions are committed."""
        data = b""
        while followed := next(self._pieces):
            data += followed.piece.data
            await self.positions.commit(followed.key, followed.position)
        return data

    async def read_for(self, seconds: float) -> bytes:
        """All bytes that are read in the next `seconds`, by the clock."""
        data, end = b"", self.watch.now + seconds
        while self.watch.now < end:
            self.watch.now += 0.2
            data += await self.read()
        return data

    def close(self) -> None:
        self._pieces.close()  # type: ignore[attr-defined]  # it is a generator


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


async def test_listings_take_at_most_two_percent_of_the_time_and_active_files_need_none(tmp_path: Path) -> None:
    active, idle = tmp_path / "a", tmp_path / "b"
    active.write_bytes(b"1")
    watch = Watch(cost=0.01)
    following = Following(tmp_path, watch)
    assert await following.read() == b"1"
    watch.cost = 0
    idle.write_bytes(b"new")
    append(active, b"2")
    watch.now += 0.2
    assert await following.read() == b"2", "a file that just grew is looked at without a listing"
    assert await following.read_for(1) == b"new"


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is a service of Linux")
async def test_the_kernels_hints_replace_the_wait_for_the_next_listing(tmp_path: Path) -> None:
    idle = tmp_path / "a"
    idle.write_bytes(b"1")
    watch = Watch(cost=0.01)
    following = Following(tmp_path, watch, changes=FolderChanges())
    await following.read()
    watch.cost = 0
    await following.read_for(20)
    watch.cost = 0.01
    await following.read_for(1)
    watch.cost = 0
    append(idle, b"2")
    assert await following.read_for(0.2) == b"2"
    (tmp_path / "b").write_bytes(b"new")
    assert await following.read_for(0.4) == b"new"
    idle.rename(tmp_path / "c")
    idle.write_bytes(b"rotated")
    assert await following.read_for(0.4) == b"rotated"
    following.close()


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is a service of Linux")
async def test_changes_of_other_files_cause_no_listing(tmp_path: Path) -> None:
    watch = Watch(cost=0.01)
    following = Following(tmp_path, watch, changes=FolderChanges(), pattern="*.log")
    await following.read()
    before = following.follower._next_listing
    (tmp_path / "other").write_bytes(b"1")
    watch.cost = 0
    await following.read()
    assert following.follower._next_listing == before
    (tmp_path / "a.log").write_bytes(b"1")
    assert await following.read_for(0.4) == b"1"
    following.close()


async def test_an_idle_file_that_grows_is_read_by_the_next_listing_without_hints(tmp_path: Path) -> None:
    idle = tmp_path / "a"
    idle.write_bytes(b"1")
    following = Following(tmp_path)
    await following.read()
    await following.read_for(20)
    append(idle, b"2")
    assert await following.read_for(1) == b"2"


async def test_a_folder_that_is_renamed_away_and_back_is_not_read_again(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a").write_bytes(b"1234")
    following = Following(folder)
    assert await following.read() == b"1234"
    folder.rename(tmp_path / "away")
    assert await following.read_for(3 * GRACE) == b""
    assert not following.follower.open_keys
    append(tmp_path / "away" / "a", b"5")
    (tmp_path / "away").rename(folder)
    assert await following.read_for(1) == b"5"


async def test_files_of_a_folder_that_cannot_be_listed_stay_open_and_the_problem_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a").write_bytes(b"1234")
    following = Following(folder)
    await following.read()
    folder.rename(tmp_path / "away")
    folder.symlink_to(folder)
    append(tmp_path / "away" / "a", b"5")
    assert await following.read_for(3 * GRACE) == b"5"
    assert len(following.follower.open_keys) == 1
    folder.unlink()
    (tmp_path / "away").rename(folder)
    await following.read_for(1)
    problem = f"cannot list {folder}: Too many levels of symbolic links"
    assert caplog.messages == [problem, f"Solved: {problem}"]


async def test_a_removed_file_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1234")
    following = Following(tmp_path)
    await following.read()
    (key,) = following.follower.open_keys
    (tmp_path / "a").unlink()
    await following.read_for(3 * GRACE)
    assert following.positions.get(key) is None


async def test_a_file_that_is_truncated_and_outgrows_its_old_size_between_two_looks_is_read_from_its_beginning(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old content")
    following = Following(tmp_path)
    await following.read()
    path.write_bytes(b"new and longer content")
    assert await following.read_for(1) == b"new and longer content"


@pytest.mark.parametrize(("exists", "came"), [(True, b"3"), (False, b"123")])
async def test_from_end_skips_only_what_exists_at_the_start(tmp_path: Path, exists: bool, came: bytes) -> None:
    path = tmp_path / "a"
    if exists:
        path.write_bytes(b"12")
    following = Following(tmp_path, from_end=True)
    assert await following.read() == b""
    append(path, b"3" if exists else b"123")
    assert await following.read_for(1) == came


@pytest.mark.parametrize(
    ("change", "came"),
    [
        (lambda path: append(path, b"56"), b"56"),
        (lambda path: path.rename(path.with_name("b")), b""),
        (lambda path: path.write_bytes(b"12"), b"12"),
        (lambda path: path.write_bytes(b"abcdef"), b"abcdef"),
    ],
    ids=["appended", "renamed", "truncated", "written again"],
)
async def test_a_later_run_goes_on_at_the_stored_position_if_the_content_is_the_same(
    tmp_path: Path, change: Any, came: bytes
) -> None:
    path, values = tmp_path / "a", MemoryValues()
    path.write_bytes(b"1234")
    for expected in (b"1234", came):
        following = Following(tmp_path, values=values)
        await following.positions.load()
        assert await following.read() == expected
        following.close()
        if expected == b"1234":
            change(path)


async def test_positions_in_closed_files_are_bounded_and_the_oldest_go_first() -> None:
    values = MemoryValues()
    positions = Positions(Problems(make_context().logger), values)
    for number in range(MAX_CLOSED + 3):
        await positions.commit(str(number), Position(1, "", {}))
    await positions.commit("0", Position(2, "", {}))
    await positions.tidy({"1"})
    assert len(values.stored) == MAX_CLOSED + 1
    assert set(map(str, range(4))) & values.stored.keys() == {"0", "1"}


async def test_damaged_positions_are_ignored_and_a_failing_storage_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    values = MemoryValues()
    values.stored = {"a": b"{", "b": b"[]", "c": b'{"offset": "x", "fingerprint": "", "resume": {}}', "d": b"\xff"}
    positions = Positions(Problems(make_context().logger), values)
    await positions.load()
    assert [positions.get(key) for key in "abcd"] == [None] * 4
    values.fails = True
    for offset in range(3):
        await positions.commit("e", Position(offset, "", {}))
    assert caplog.messages == ["cannot store positions in files, a restart will repeat rows: the disk is full"]
    assert positions.get("e") == Position(2, "", {})


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has inotify")
async def test_a_file_that_is_renamed_out_of_the_glob_between_two_listings_is_read(tmp_path: Path) -> None:
    (tmp_path / "first.csv").write_bytes(b"1")
    following = Following(tmp_path, changes=FolderChanges(), pattern="*.csv")
    assert await following.read() == b"1"
    path = tmp_path / "short.csv"
    path.write_bytes(b"2")
    path.rename(tmp_path / "short.old")
    (tmp_path / "short.old").rename(tmp_path / "short.older")
    assert await following.read() == b"2"
    assert await following.read_for(2 * GRACE) == b""
    assert len(following.follower.open_keys) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has inotify")
async def test_a_file_that_is_removed_before_it_could_be_read_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "known.csv").write_bytes(b"1")
    following = Following(tmp_path, changes=FolderChanges(), pattern="*.csv")
    assert await following.read() == b"1"
    path = tmp_path / "short.csv"
    path.write_bytes(b"2")
    path.unlink()
    (tmp_path / "known.csv").unlink()
    (tmp_path / "other.log").write_bytes(b"3")
    (tmp_path / "other.log").unlink()
    assert await following.read_for(2 * GRACE) == b""
    assert caplog.messages == [f"{path} came and went before it could be read: its data is lost"]
