"""Small values: durable, replaced as a whole, and missing if damaged."""

import os
from pathlib import Path

import pytest

from otel_zernel.storage import StorageFailed
from otel_zernel.testing import make_context
from otel_zernel_extensions.file_storage.extension import FileKeyValues
from tests.extensions.file_storage.parts import files

LOGGER = make_context("extensions", "file_storage").logger
KEYS = ["", "position", "/data/" + "x" * 5000, "ünïcödé\n", os.fsdecode(b"/data/\xff\xfe.csv"), "../../etc/passwd"]


@pytest.fixture
def values(tmp_path: Path) -> FileKeyValues:
    return FileKeyValues(tmp_path / "v", LOGGER)


async def test_values_survive_by_any_key(values: FileKeyValues, tmp_path: Path) -> None:
    for key in KEYS:
        await values.set(key, key.encode("utf-8", "surrogateescape") * 2)
    await values.set("position", b"")
    again = FileKeyValues(tmp_path / "v", LOGGER)
    assert await again.keys() == sorted(KEYS)
    assert [await again.get(key) for key in KEYS if key != "position"] == [
        key.encode("utf-8", "surrogateescape") * 2 for key in KEYS if key != "position"
    ]
    assert await again.get("position") == b""
    assert {path.parent for path in files(tmp_path, ".value")} == {tmp_path / "v"}


async def test_a_missing_value_is_none_and_a_deleted_one_too(values: FileKeyValues) -> None:
    assert await values.get("key") is None
    assert await values.keys() == []
    await values.set("key", b"1")
    await values.set("key", None)
    await values.set("key", None)
    assert await values.get("key") is None
    assert await values.keys() == []


async def test_every_changed_byte_makes_a_value_missing_with_a_warning(
    values: FileKeyValues, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await values.set("key", b"1234")
    (path,) = files(tmp_path, ".value")
    whole = path.read_bytes()
    for at in (at for at in range(len(whole)) if at not in (10, 11)):  # without the padding
        changed = bytearray(whole)
        changed[at] ^= 1
        path.write_bytes(changed)
        caplog.clear()
        assert await values.get("key") is None, at
        assert "counts as missing" in caplog.text or at in range(12, 16)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert await values.get("key") is None
    await values.set("key", b"5678")
    assert await values.get("key") == b"5678"


async def test_a_value_that_cannot_be_written_leaves_the_old_one(values: FileKeyValues, tmp_path: Path) -> None:
    await values.set("key", b"old")
    (path,) = files(tmp_path, ".value")
    (path.parent / f"{path.name}.new").mkdir()  # the place of the new content
    with pytest.raises(StorageFailed, match="cannot write to"):
        await values.set("key", b"new")
    assert await values.get("key") == b"old"


async def test_foreign_files_are_left_alone(values: FileKeyValues, tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "notes.txt").write_text("mine")
    (tmp_path / "v" / "other.value").write_text("mine too")
    await values.set("key", b"1")
    assert await values.keys() == ["key"]
    assert (tmp_path / "v" / "other.value").read_text() == "mine too"
