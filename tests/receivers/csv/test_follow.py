"""Following files that grow, rotate and are truncated: no row is lost or doubled."""

import asyncio
import os
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.component import Context
from otel_zernel.errors import CannotStart
from otel_zernel.testing import Downstream, FakeClock, make_context, until
from otel_zernel_libraries.files.growing import GRACE
from tests.background import in_background
from tests.receivers.csv.running import HEADER, LAYOUT, append, receiver, rows, values_of


class Followed(Downstream):
    """The downstream of a running receiver."""

    async def values(self, count: int) -> list[float]:
        """Waits for at least `count` values, and returns all."""
        await until(lambda: self.point_count >= count)
        return values_of(self)


@asynccontextmanager
async def following(*files: Path, context: Context | None = None, **options: Any) -> AsyncIterator[Followed]:
    followed = Followed()
    follow = receiver(context, files=[str(path) for path in files], layout=LAYOUT, follow=True, **options)
    async with in_background(follow.run(followed)):
        yield followed


async def test_appended_rows_are_emitted_and_an_unfinished_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("")
    async with following(path) as followed:
        append(path, HEADER + rows(1, 2) + "1752871354,a,x,")
        assert await followed.values(1) == [1]
        append(path, "2\n")
        assert await followed.values(2) == [1, 2]


async def test_without_storage_another_run_reads_from_where_start_at_says(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(HEADER + rows(10))
    for _ in range(2):
        async with following(path) as followed:
            assert await followed.values(10) == list(range(10))
    async with following(path, start_at="end") as followed, asyncio.timeout(60):
        for value in count(10):  # until it has found the end of the file
            append(path, rows(value, value + 1))
            await asyncio.sleep(0.05)
            if followed.batches:
                break
        first, *others = await followed.values(1)
        assert first >= 10
        assert others == [first + 1 + index for index in range(len(others))]


async def test_rotation_by_rename_loses_and_doubles_no_row(tmp_path: Path) -> None:
    path, old = tmp_path / "a.csv", tmp_path / "a.csv.1"
    path.write_text(HEADER + rows(1, 2))
    async with following(path) as followed:
        await followed.values(1)
        path.rename(old)
        append(old, rows(2, 3))
        await followed.values(2)
        path.write_text(HEADER + rows(3, 4))
        assert await followed.values(3) == [1, 2, 3]


async def test_the_last_line_of_a_removed_file_needs_no_line_end(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(HEADER + rows(1, 3).rstrip())
    async with following(path) as followed:
        await followed.values(1)
        path.unlink()
        assert await followed.values(2) == [1, 2]


@pytest.mark.parametrize("header", [HEADER, ""], ids=["with a header", "without"])
async def test_a_truncated_file_is_read_from_its_new_beginning(tmp_path: Path, header: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(HEADER + rows(1, 3))
    async with following(path) as followed:
        await followed.values(2)
        path.write_text("")
        await followed.values(2)
        append(path, header + rows(3, 4))
        assert await followed.values(3) == [1, 2, 3]


async def test_an_unreadable_file_is_logged_and_does_not_stop_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(HEADER + rows(1, 2))
    async with following(tmp_path / "*.csv") as followed:
        await followed.values(1)
        (tmp_path / "b.csv").write_text("nonsense\n")
        append(path, rows(2, 3))
        assert await followed.values(2) == [1, 2]
        await until(lambda: bool(caplog.messages))
    problem = "has no column 't' and no column 'k' and no column 'm' and no column 'v'; its columns are 'nonsense'"
    advice = "check the options layout and delimiter; waiting for a later header"
    assert caplog.messages == [f"the header of {tmp_path / 'b.csv'} {problem}; {advice}"]


async def test_files_that_do_not_exist_yet_are_logged_and_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, glob = tmp_path / "a.csv", tmp_path / "*.log"
    async with following(path, glob) as followed:
        await until(lambda: len(caplog.messages) == 2)
        path.write_text(HEADER + rows(1, 2))
        await followed.values(1)
        (tmp_path / "b.log").write_text(HEADER + rows(2, 3))
        assert await followed.values(2) == [1, 2]
    assert caplog.messages == [f"{missing} does not exist yet; waiting for it" for missing in (path, glob)]


async def test_a_pipe_cannot_be_followed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CannotStart, match="is not a regular file; remove follow"):
        await receiver(files=[str(tmp_path / "pipe")], layout=LAYOUT, follow=True).run(Downstream())


async def test_a_file_that_cannot_be_followed_is_an_error_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"\x1f\x8b")
    with pytest.raises(CannotStart, match="it is compressed"):
        await receiver(files=[str(path)], layout=LAYOUT, follow=True).run(Downstream())
    path.write_text("nonsense\n1,2,3\n")
    with pytest.raises(CannotStart, match="has no column 't'"):
        await receiver(files=[str(path)], layout=LAYOUT, follow=True).run(Downstream())


async def test_running_out_of_descriptors_repeats_no_row_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, clock = tmp_path / "a.csv", FakeClock()
    path.write_text(HEADER + rows(0, 1))
    async with following(tmp_path / "*.csv", context=make_context(id_="csv", clock=clock)) as followed:
        await followed.values(1)
        with path.open("a") as file, no_descriptors():
            file.write(rows(1, 2))
            file.flush()
            began = clock.monotonic()
            await until(lambda: clock.monotonic() > began + 4 * GRACE)
        (tmp_path / "b.csv").write_text(HEADER + rows(2, 3))
        assert await followed.values(3) == [0, 1, 2]
    assert caplog.messages == [f"cannot list {tmp_path}: Too many open files"]


@contextmanager
def no_descriptors() -> Iterator[None]:
    """The process cannot open any file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.open("/dev/null", os.O_RDONLY)
    os.close(spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
