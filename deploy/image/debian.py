"""Debian's part of the image: Python's interpreter, libbpf, tini and certificates of authorities.

Packages are unpacked only. No program of the image runs, so any machine builds the image of any architecture.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

SUITE: Final = "bookworm"
PYTHON: Final = "python3.11"
_PACKAGES: Final = (
    "base-files",  # scanners read the distribution's name in its os-release
    "ca-certificates",
    "libbpf1",
    f"lib{PYTHON}-stdlib",
    "libstdc++6",
    "netbase",
    f"{PYTHON}-minimal",
    "tini",
)
_FOR_SCRIPTS_ONLY: Final = (
    "debconf", "dpkg", "libacl1", "libmd0", "libpcre2-8-0", "libselinux1", "mawk", "openssl", "readline-common",
    "tar",
)  # fmt: skip
"""Dependencies of the packages' scripts, which never run here."""
_NOT_NEEDED: Final = (
    "etc/apt", "etc/cron.daily", "etc/dpkg", "etc/fstab", "etc/logrotate.d", "etc/update-motd.d",
    "usr/bin/tini-static", "usr/include", "usr/lib/*/gconv", "usr/lib/python3.11/ensurepip",
    "usr/lib/python3.11/idlelib", "usr/lib/python3.11/lib2to3", "usr/lib/python3.11/pydoc_data",
    "usr/lib/python3.11/test", "usr/lib/python3.11/tkinter", "usr/lib/python3.11/turtledemo",
    "usr/sbin/update-ca-certificates", "usr/share/base-files", "usr/share/info", "usr/share/lintian",
    "usr/share/locale", "usr/share/man", "usr/share/perl5", "usr/share/pixmaps", "var/cache", "var/lib/apt",
    "var/lib/dpkg", "var/log",
)  # fmt: skip
_USERS: Final = "root:x:0:0:root:/:/sbin/nologin\notel:x:10001:10001:otel-zernel:/:/sbin/nologin\n"
_GROUPS: Final = "root:x:0:\notel:x:10001:\n"


def unpack_debian(root: Path, architecture: str) -> None:
    """Makes the tree in `root`, for `amd64` or `arm64`. Raises CalledProcessError if a package cannot be downloaded."""
    merged = "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"
    options = ("--quiet", "--variant=extract", f"--architectures={architecture}", "--skip=cleanup", merged)
    subprocess.run(["mmdebstrap", *options, f"--include={','.join(_PACKAGES)}", SUITE, root], check=True)
    packages = sorted((root / "var/cache/apt/archives").glob("*.deb"))
    described = {_field(package, "Package"): _field(package) for package in packages}
    for package in packages:
        if _field(package, "Package") in _FOR_SCRIPTS_ONLY:
            _remove_files(root, package)
    for pattern in _NOT_NEEDED:
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    _remove_documents(root)
    _describe_packages(root, {name: text for name, text in described.items() if name not in _FOR_SCRIPTS_ONLY})
    _configure(root)


def _field(package: Path, *names: str) -> str:
    """The control fields of a .deb: one value, or without a name all of them as text."""
    done = subprocess.run(["dpkg-deb", "--field", package, *names], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _remove_files(root: Path, package: Path) -> None:
    listed = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], capture_output=True, check=True).stdout
    names = subprocess.run(["tar", "--list"], input=listed, capture_output=True, check=True).stdout.decode().split()
    for name in names:
        path = root / name
        if not name.endswith("/") and os.path.lexists(path):
            path.unlink()


def _remove_documents(root: Path) -> None:
    """Keeps the licenses."""
    for path in (root / "usr/share/doc").rglob("*"):
        if path.is_file() and not path.is_symlink() and path.name != "copyright":
            path.unlink()


def _describe_packages(root: Path, packages: dict[str, str]) -> None:
    """The control fields of each package, in the place where scanners of images look without dpkg's database."""
    folder = root / "var/lib/dpkg/status.d"
    folder.mkdir(parents=True)
    for name, fields in packages.items():
        (folder / name).write_text(fields + "\n")


def _configure(root: Path) -> None:
    """Files that scripts of the packages make on a usual Debian."""
    certificates = sorted((root / "usr/share/ca-certificates/mozilla").glob("*.crt"))
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_text("".join(certificate.read_text() for certificate in certificates))
    (root / "etc/passwd").write_text(_USERS)
    (root / "etc/group").write_text(_GROUPS)
    (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")  # most runtimes mount their own
    for name in ("hostname", "resolv.conf"):
        (root / "etc" / name).write_text("")
    for device in (root / "dev").iterdir():
        shutil.rmtree(device) if device.is_dir() and not device.is_symlink() else device.unlink()
    tmp = root / "tmp"
    shutil.rmtree(tmp)  # mmdebstrap leaves a file with a random name
    tmp.mkdir()
    tmp.chmod(0o1777)
