"""The extension: its directory, its lock, and what it keeps for each component."""

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from otel_zernel.clock import SystemClock
from otel_zernel.errors import CannotStart
from otel_zernel.testing import make_context, until
from otel_zernel_extensions.file_storage import FileStorageExtension
from otel_zernel_extensions.file_storage.extension import component_name, file_name
from tests.extensions.file_storage.parts import files


def storage(directory: Path, **settings: object) -> FileStorageExtension:
    config = FileStorageExtension.Config.model_validate({"directory": str(directory), "timeout": 0, **settings})
    return FileStorageExtension(config, make_context("extensions", "file_storage", clock=SystemClock()))


async def test_components_share_nothing_and_find_their_own_again(tmp_path: Path) -> None:
    names = ["exporters::otlp", "exporters::otlp/backup", "exporters::OTLP", "exporters::otlp%2fbackup"]
    async with storage(tmp_path) as extension:
        for name in names:
            await (await extension.journal(name)).append("metrics", name.encode(), 1)
            await (await extension.key_values(name)).set("key", name.encode())
    async with storage(tmp_path) as extension:
        for name in names:
            journal = await extension.journal(name)
            assert [journal.read(record) for record in journal.records()] == [name.encode()]
            assert await (await extension.key_values(name)).get("key") == name.encode()
    assert {view.component for view in FileStorageExtension.look(tmp_path)} == set(names)


async def test_a_journal_can_be_opened_again_while_the_extension_runs(tmp_path: Path) -> None:
    async with storage(tmp_path) as extension:
        await (await extension.journal("exporters::otlp")).append("metrics", b"x", 1)
        again = await extension.journal("exporters::otlp")
        assert [again.read(record) for record in again.records()] == [b"x"]


class HeldClock(SystemClock):
    """A clock whose sleeps end when the test lets them."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        await self.released.wait()


async def test_batches_of_an_exporter_that_was_renamed_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with storage(tmp_path) as extension:
        for name in ("exporters::old", "exporters::kept"):
            await (await extension.journal(name)).append("metrics", b"x", 1)
        await extension.journal("exporters::empty")
    clock = HeldClock()
    later = FileStorageExtension(extension.config, make_context("extensions", "file_storage", clock=clock))
    async with later:
        await later.journal("exporters::kept")
        clock.released.set()
        await until(lambda: "No exporter delivers" in caplog.text)
    assert [record.args[0] for record in caplog.records if "No exporter" in record.msg] == ["exporters::old"]  # type: ignore[index]  # a tuple


async def test_a_missing_directory_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        CannotStart,
        match=r"extensions::file_storage::directory: cannot use .*/none: No such file or directory; "
        "create it, or set create_directory$",
    ):
        await storage(tmp_path / "none").__aenter__()
    async with storage(tmp_path / "none" / "deep", create_directory=True, directory_permissions="0700"):
        assert (tmp_path / "none" / "deep").stat().st_mode & 0o777 == 0o700


async def test_a_file_in_place_of_the_directory_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CannotStart, match=r"cannot use .*/file: Not a directory; choose another directory"):
        await storage(tmp_path / "file").__aenter__()


HOLDER = """
import asyncio, sys
from pathlib import Path
from tests.extensions.file_storage.test_file_storage import storage

async def main():
    async with storage(Path(sys.argv[1])):
        print("ready", flush=True)
        sys.stdin.read()

asyncio.run(main())
"""


@pytest.fixture
def other_process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that uses the directory until its input ends."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environ,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


async def test_a_directory_in_use_is_an_error_with_the_pid_of_the_other_process(
    tmp_path: Path, other_process: subprocess.Popen[str]
) -> None:
    with pytest.raises(
        CannotStart, match=f"is in use by the process with pid {other_process.pid}; stop it, or choose another"
    ):
        await storage(tmp_path).__aenter__()


async def test_a_directory_is_free_after_kill_9(tmp_path: Path, other_process: subprocess.Popen[str]) -> None:
    other_process.kill()
    other_process.wait()
    async with storage(tmp_path):
        assert (tmp_path / "lock").read_text().split()[0] == str(os.getpid())


async def test_a_directory_that_becomes_free_within_the_timeout_is_used(
    tmp_path: Path, other_process: subprocess.Popen[str]
) -> None:
    assert other_process.stdin
    other_process.stdin.close()
    async with storage(tmp_path, timeout="60s"):
        pass


async def test_two_storage_extensions_need_two_directories(tmp_path: Path) -> None:
    async with storage(tmp_path):
        with pytest.raises(CannotStart, match="is in use by another storage extension of this collector"):
            await storage(tmp_path).__aenter__()
    async with storage(tmp_path):
        pass


def test_a_configuration_of_the_opentelemetry_collector_is_accepted() -> None:
    compaction = {
        "on_start": True,
        "on_rebound": True,
        "directory": "/tmp/otc",
        "rebound_needed_threshold_mib": 5,
        "rebound_trigger_threshold_mib": 3,
        "max_transaction_size": 65536,
        "check_interval": "5s",
        "cleanup_on_start": True,
    }
    config = FileStorageExtension.Config.model_validate({"timeout": "1s", "recreate": True, "compaction": compaction})
    assert str(config.directory) == "/var/lib/otelcol/file_storage"
    assert config.fsync


@pytest.mark.parametrize("permissions", ["750x", "0789", "-1", "7777", "", "rwxr-x---"])
def test_wrong_permissions_are_refused_with_an_example(permissions: str) -> None:
    with pytest.raises(ValidationError, match=r'are not directory permissions; .* like "0750"'):
        FileStorageExtension.Config.model_validate({"directory_permissions": permissions})


async def test_keys_without_effect_are_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with storage(tmp_path, recreate=True, compaction={"on_start": True}):
        pass
    assert caplog.messages == ["compaction and recreate: no effect here, since the format needs neither"]


async def test_a_loss_is_in_the_damage_of_its_journal_alone(tmp_path: Path) -> None:
    async with storage(tmp_path) as extension:
        for name in ("exporters::otlp", "exporters::file"):
            await (await extension.journal(name)).append("metrics", b"x" * 100, 7)
    with files(tmp_path / "exporters%3a%3aotlp.queue", ".segment")[0].open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"y")
    async with storage(tmp_path) as extension:
        (damage,) = (await extension.journal("exporters::otlp")).damage
        assert (await extension.journal("exporters::file")).damage == ()
    assert (damage.records, damage.items, damage.bytes) == (1, 7, 100)
    assert str(damage) == "lost 1 stored batch with 7 items: 00000000000000000001.segment was changed on the disk"


def test_doctor_finds_a_missing_directory_and_free_space(tmp_path: Path) -> None:
    config = FileStorageExtension.Config.model_validate({"directory": str(tmp_path / "none")})
    (missing,) = FileStorageExtension.examine(config)
    assert (missing.ok, missing.text) == (
        False,
        f"{tmp_path}/none does not exist; create it, or set create_directory",
    )
    config = FileStorageExtension.Config.model_validate({"directory": str(tmp_path)})
    (space,) = FileStorageExtension.examine(config)
    assert space.ok is None
    assert space.text.endswith(f"GiB are free in {tmp_path}")


def test_a_name_that_is_too_long_for_a_file_is_one_sentence() -> None:
    with pytest.raises(CannotStart, match="the name is too long for a file"):
        file_name("exporters::otlp/" + "x" * 300)


@given(st.text(max_size=15))
def test_file_names_are_safe_and_reversible(name: str) -> None:
    assert component_name(file_name(name)) == name
    assert set(file_name(name)) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-%")
