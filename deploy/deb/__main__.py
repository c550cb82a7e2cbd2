"""`make deb` builds a package for Debian and Ubuntu into dist: README.md says what is in it.

Wheels with compiled code fit one version 3.x of Python, so a package is for one release of the distribution. No program
of the package runs, so any machine with dpkg-deb builds it for any release and architecture.
"""

import argparse
import gzip
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from deploy.image.python_packages import PROJECT, install_into, version

_EXTRAS: Final = ("gateway",)
_LAUNCHER: Final = """#!/usr/bin/python3 -sP
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from otel_zernel.__main__ import main

sys.exit(main())
"""
_CONTROL: Final = """Package: otel-zernel
Version: {version}
Architecture: {architecture}
Maintainer: The maintainers of otel-zernel <otel-zernel@localhost>
Installed-Size: {kibibytes}
Depends: python3 (>= {python}), python3 (<< {next_python}), libbpf1
Section: admin
Priority: optional
Description: Why is my training slow?
 Watches running PyTorch jobs with eBPF and says why they are slow, and is an
 OpenTelemetry collector.
"""
_COMPILE: Final = """#!/bin/sh
set -e
[ "$1" != configure ] || /usr/bin/python3 -m compileall -q "$DPKG_ROOT/opt/otel-zernel/lib"
"""
_FORGET_COMPILED: Final = """#!/bin/sh
set -e
find "$DPKG_ROOT/opt/otel-zernel/lib" -depth -name __pycache__ -exec rm -r {} +
"""
_CONFIG: Final = "etc/otel-zernel/config.yaml"


def main(arguments: Sequence[str] | None = None) -> None:
    """Builds one package. Raises CalledProcessError if a step fails."""
    parser = argparse.ArgumentParser(prog="python -m deploy.deb", description="Builds a package for Debian.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--architecture", choices=("amd64", "arm64"), default=_output("dpkg", "--print-architecture"))
    parser.add_argument(
        "--python",
        default=None,
        metavar="3.X",
        help="the python3 of the release: 3.11 in Debian 12, 3.12 in Ubuntu 24.04, 3.13 in Debian 13 (default: of "
        "this machine)",
    )
    options = parser.parse_args(arguments)
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    python = options.python or _output("/usr/bin/python3", "-c", code)
    print(build(options.folder, options.architecture, python))


def build(folder: Path, architecture: str, python: str) -> Path:
    """The package, made in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    package = folder / f"otel-zernel_{_version(python)}_{architecture}.deb"
    with tempfile.TemporaryDirectory(prefix="otel-zernel-deb-") as name:
        root, wheels = Path(name, "root"), Path(name, "wheels")
        lib = root / "opt/otel-zernel/lib"
        install_into(lib, architecture, python, _EXTRAS, wheels)
        _add(root, _files())
        shutil.rmtree(lib / "share", ignore_errors=True)  # the wheel's manual page
        _add(root, _about_the_package(root, architecture, python))
        command = ["dpkg-deb", "--root-owner-group", "-Zzstd", "-z9", "--build", str(root), str(package)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return package


def _version(python: str) -> str:
    return f"{version()}-py{python}"


def _files() -> Mapping[str, str | bytes]:
    """The files beside the packages of Python, by their paths."""
    manual = gzip.compress((PROJECT / "docs/otel-zernel.1").read_bytes(), mtime=0)
    completion = subprocess.run(
        [sys.executable, "-m", "otel_zernel", "completion", "bash"], capture_output=True, check=True
    ).stdout
    return {
        "opt/otel-zernel/bin/otel-zernel": _LAUNCHER,
        "usr/lib/systemd/system/otel-zernel.service": (PROJECT / "deploy/systemd/otel-zernel.service").read_bytes(),
        "usr/share/bash-completion/completions/otel-zernel": completion,
        "usr/share/doc/otel-zernel/copyright": b"".join(map(Path.read_bytes, _licenses())),
        "usr/share/man/man1/otel-zernel.1.gz": manual,
        _CONFIG: (PROJECT / "examples/training.yaml").read_bytes(),
    }


def _licenses() -> list[Path]:
    return [PROJECT / "LICENSE", *sorted((PROJECT / "LICENSES").glob("*.txt"))]


def _about_the_package(root: Path, architecture: str, python: str) -> Mapping[str, str]:
    major, minor = map(int, python.split("."))
    control = _CONTROL.format(
        version=_version(python),
        architecture=architecture,
        kibibytes=sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) >> 10,
        python=python,
        next_python=f"{major}.{minor + 1}",
    )
    return {
        "DEBIAN/control": control,
        "DEBIAN/conffiles": f"/{_CONFIG}\n",
        "DEBIAN/postinst": _COMPILE,
        "DEBIAN/prerm": _FORGET_COMPILED,
    }


def _add(root: Path, files: Mapping[str, str | bytes]) -> None:
    """Writes the files. Programs begin with `#!`. The command is also in the path of all users."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(data)
        path.chmod(0o755 if data.startswith(b"#!") else 0o644)
    command = root / "usr/bin/otel-zernel"
    if not command.is_symlink():
        command.parent.mkdir(parents=True, exist_ok=True)
        command.symlink_to("../../opt/otel-zernel/bin/otel-zernel")


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
