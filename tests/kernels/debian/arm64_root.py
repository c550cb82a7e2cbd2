"""Makes the root folder of an emulated arm64 machine: a Debian tree with the project and its dependencies.

The packages are unpacked only, so that no arm64 program has to run here.
"""

import compileall
import shutil
import sys
import tarfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

from tests.kernels.debian.packages import CACHE, KEYRING, mirror, run

PROJECT = Path(__file__).parents[3]
IN_ROOT = "project"
"""The copy of the project in the tree."""

_PACKAGES = (
    "bash,busybox-static,ca-certificates,coreutils,findutils,gawk,grep,libbpf1,libcap2-bin,libpython3.11,"
    "libpython3.11-dev,libpython3.11-stdlib,libstdc++6,mount,procps,python3,sed,util-linux"
)
_PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64")
_TESTING = ("hypothesis", "pytest", "pytest-asyncio", "pytest-timeout")
_WITHOUT_WHEEL = "hdrhistogram"
_SITE = "usr/local/lib/python3.11/dist-packages"


def arm64_root() -> Path:
    """The tree with the current project. Making it takes a minute the first time. Raises CannotDownload."""
    root, required = CACHE / "arm64-root", "\n".join((_PACKAGES, *_requirements()))
    made_of = root / "made-of"
    if not made_of.exists() or made_of.read_text() != required:
        shutil.rmtree(root, ignore_errors=True)
        _unpack_debian(root)
        _install_dependencies(root)
        compileall.compile_dir(root / "usr/lib/python3.11", quiet=2)  # this Python has the same version
        made_of.write_text(required)
    _copy_project(root)
    return root


def _unpack_debian(root: Path) -> None:
    source = f"deb [signed-by={KEYRING}] {mirror()} bookworm main"
    options = "--variant=extract", "--arch=arm64", "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"
    run(["mmdebstrap", *options, f"--include={_PACKAGES}", "bookworm", str(root), source])
    for link, target in {"cc": "gcc", "sh": "bash"}.items():  # normally made by package scripts, which did not run
        path = root / "usr/bin" / link
        path.unlink(missing_ok=True)
        path.symlink_to(target)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n")
    (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    (root / "etc/ld.so.conf").write_text("/lib/aarch64-linux-gnu\n/usr/lib/aarch64-linux-gnu\n")


def _requirements() -> list[str]:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *_TESTING]


def _install_dependencies(root: Path) -> None:
    wheels = [name for name in _requirements() if not name.startswith(_WITHOUT_WHEEL)]
    platforms = [f"--platform={platform}" for platform in _PLATFORMS]
    _pip(root, "--only-binary=:all:", "--python-version=3.11", "--implementation=cp", *platforms, *wheels)
    _pip(root, "--no-deps", str(PROJECT))
    _compile_hdrhistogram(root)


def _compile_hdrhistogram(root: Path) -> None:
    """Compiles hdrhistogram, which has no wheel for arm64, from its one C file."""
    folder = root / "tmp/hdrhistogram"
    run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-binary=:all:",
            "-d",
            str(folder),
            _WITHOUT_WHEEL,
        ]
    )
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(folder, filter="data")
    (source_file,) = folder.glob("*/src/python-codec.c")
    shutil.copytree(source_file.parents[1] / "hdrh", root / _SITE / "hdrh", dirs_exist_ok=True)
    target = root / _SITE / "pyhdrh.cpython-311-aarch64-linux-gnu.so"
    headers = f"-I{root}/usr/include/python3.11", "-idirafter", f"{root}/usr/include"
    run(["aarch64-linux-gnu-gcc", "-shared", "-fPIC", *headers, "-w", "-O2", str(source_file), "-o", str(target)])


def _copy_project(root: Path) -> None:
    target = root / IN_ROOT
    shutil.rmtree(target, ignore_errors=True)
    for name in _files_of_project():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(PROJECT / name, target / name)


def _files_of_project() -> Iterable[str]:
    """The tracked files, and untracked files that git does not ignore."""
    listed = run(["git", "-C", str(PROJECT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
    return (name for name in listed.split("\0") if name and (PROJECT / name).is_file())


def _pip(root: Path, *arguments: str) -> None:
    run([sys.executable, "-m", "pip", "install", "-q", "--target", str(root / _SITE), "--upgrade", *arguments])
