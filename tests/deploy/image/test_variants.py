"""The other variants of the image: for arm64 with pyarrow, and both architectures under one name."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.deploy.image.test_image import described


@pytest.mark.soak
def test_one_name_has_both_architectures(image: Path, arm64: Path, tmp_path: Path) -> None:
    """The commands of deploy/README.md, with a folder in place of the registry."""
    store = ["buildah", "--storage-driver=vfs", f"--root={tmp_path / 'store'}", f"--runroot={tmp_path / 'run'}"]
    subprocess.run([*store, "manifest", "create", "all"], check=True)
    for archive in (image, arm64):
        subprocess.run([*store, "manifest", "add", "all", f"oci-archive:{archive}"], check=True)
    subprocess.run([*store, "manifest", "push", "--all", "all", f"oci:{tmp_path / 'all'}"], check=True)
    inspect = ["skopeo", "inspect", "--raw", f"oci:{tmp_path / 'all'}"]
    index = json.loads(subprocess.run(inspect, capture_output=True, check=True).stdout)
    assert {(one["platform"]["os"], one["platform"]["architecture"]) for one in index["manifests"]} == {
        ("linux", "amd64"),
        ("linux", "arm64"),
    }


@pytest.mark.soak
def test_the_image_for_arm64_has_only_programs_for_arm64(arm64: Path, tmp_path: Path) -> None:
    assert described(arm64)["architecture"] == "arm64"
    layout = tmp_path / "layout"
    layout.mkdir()
    subprocess.run(["tar", "--extract", "--file", arm64, "--directory", layout], check=True)
    (layer,) = (path for path in (layout / "blobs/sha256").iterdir() if path.stat().st_size > 1 << 20)
    tree = tmp_path / "tree"
    tree.mkdir()
    subprocess.run(["tar", "--extract", "--file", layer, "--directory", tree], check=True)
    programs = [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink() and is_elf(path)]
    of_users = [path for path in programs if path.suffix != ".o"]  # the programs of eBPF have a machine of their own
    assert {machine(path) for path in of_users} == {183}, "EM_AARCH64"
    assert list(tree.rglob("pyarrow/_parquet*.so"))


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def machine(path: Path) -> int:
    """`e_machine` of an ELF file."""
    with path.open("rb") as file:
        return int.from_bytes(file.read(20)[18:20], "little")
