"""Files that the child reads: ELF, and folders with kernel headers."""

import os
import struct
from pathlib import Path

import pytest

from otel_zernel_receivers.bcc.child import headers
from otel_zernel_receivers.bcc.child.usdt import file_offset


def elf(path: Path) -> str:
    """A file with two segments: the code at 0x401000 and the data at 0x600000."""
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1", 2, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    code = struct.pack("<IIQQQQQQ", 1, 5, 0x1000, 0x401000, 0x401000, 0x2000, 0x2000, 0x1000)
    data = struct.pack("<IIQQQQQQ", 1, 6, 0x3000, 0x600000, 0x600000, 0x100, 0x9000, 0x1000)
    path.write_bytes(header + code + data)
    return str(path)


def test_an_address_is_found_in_its_segment(tmp_path: Path) -> None:
    path = elf(tmp_path / "program")
    assert (file_offset(path, 0x401234), file_offset(path, 0x600010)) == (0x1234, 0x3010)


@pytest.mark.parametrize("address", [0x400FFF, 0x403000, 0x600100])
def test_an_address_outside_the_file_is_refused(address: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"contains nothing at the address {address:#x}"):
        file_offset(elf(tmp_path / "program"), address)


def with_headers(folder: Path) -> Path:
    (folder / "include/linux").mkdir(parents=True)
    (folder / "include/linux/kconfig.h").touch()
    return folder


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCC_KERNEL_SOURCE", "")


@pytest.mark.parametrize("name", ["", "build"])
def test_headers_in_one_tree_need_no_flags(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = with_headers(tmp_path / name if name else tmp_path)
    assert headers.use(tmp_path) == []
    assert os.environ["BCC_KERNEL_SOURCE"] == str(tree)


def test_headers_that_a_distribution_has_split_are_joined(tmp_path: Path) -> None:
    source = with_headers(tmp_path / "source")
    (tmp_path / "build").mkdir()
    flags = headers.use(tmp_path)
    assert flags
    assert flags[0] == f"-I{tmp_path}/build/include"
    assert os.environ["BCC_KERNEL_SOURCE"] == str(source)


def test_a_folder_without_headers_is_refused(tmp_path: Path) -> None:
    assert headers.use(tmp_path) is None
