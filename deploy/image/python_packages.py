"""Python's part of the image: otel-zernel, its dependencies and the command."""

import compileall
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Final

PROJECT: Final = Path(__file__).parents[2]
_SITE: Final = "usr/local/lib/python3.11/dist-packages"
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_WHEELS: Final = ("manylinux2014", "manylinux_2_17", "manylinux_2_27", "manylinux_2_28", "manylinux_2_34")
"""The kinds of wheels that Debian's libc 2.36 runs."""
_NOT_NEEDED: Final = (
    "*/tests", "*/test", "bin", "numpy/_core/include", "numpy/_core/lib", "numpy/doc", "numpy/f2py", "numpy/random/lib",
    "numpy/random/_examples", "pyarrow/include", "pyarrow/includes", "pyarrow/src", "setuptools*", "_distutils_hack",
    "distutils-precedence.pth", "pkg_resources",
)  # fmt: skip
_COMMAND: Final = """#!/usr/bin/python3.11 -sP
import sys

from otel_zernel.__main__ import main

sys.exit(main())
"""
EXTRAS: Final = ("gateway", "kafka", "store")
"""Optional dependencies of every image. `csv` needs pyarrow, which doubles the size."""


def install(root: Path, architecture: str, extras: Iterable[str], wheels: Path) -> None:
    """Installs the project and its dependencies into the tree, with the versions of `constraints.txt`.

    `wheels` is a folder for the project's wheel. Raises CalledProcessError if pip finds no package for the
    architecture.
    """
    lock = f"--constraint={Path(__file__).with_name('constraints.txt')}"
    install_into(root / _SITE, architecture, "3.11", extras, wheels, lock)
    _byte_compile(root)
    command = root / "usr/bin/otel-zernel"
    command.write_text(_COMMAND)
    command.chmod(0o755)


def install_into(
    site: Path, architecture: str, python: str, extras: Iterable[str], wheels: Path, *options: str
) -> None:
    """Installs the project and its dependencies into a folder, for a version of Python such as `3.11`.

    `options` are more of pip's. The rest is as for `install`.
    """
    _pip("wheel", "--no-deps", "--wheel-dir", str(wheels), str(PROJECT))
    (wheel,) = wheels.glob("otel_zernel-*.whl")
    platforms = [f"--platform={kind}_{_MACHINES[architecture]}" for kind in _WHEELS]
    kind = ("--only-binary=:all:", f"--python-version={python}", "--implementation=cp", "--no-compile")
    _pip("install", "--target", str(site), *kind, *platforms, *options, f"{wheel}[{','.join(extras)}]")
    _clean(site)


def version() -> str:
    """The project's version."""
    with (PROJECT / "pyproject.toml").open("rb") as file:
        text: str = tomllib.load(file)["project"]["version"]
    return text


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)


def _clean(site: Path) -> None:
    """Removes files that are not used at run time, and those that name this machine's folders."""
    for pattern in (*_NOT_NEEDED, "*.dist-info/direct_url.json", "*.dist-info/RECORD", "*.dist-info/REQUESTED"):
        for path in site.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for pattern in ("*.pyi", "*.pyx", "*.pxd", "*.a"):
        for path in site.rglob(pattern):
            path.unlink()


def _byte_compile(root: Path) -> None:
    """Compiles all modules: the image is read-only at run time. Hashes in place of times make the result repeatable."""
    for folder in ("usr/lib/python3.11", _SITE):
        compileall.compile_dir(
            root / folder,
            maxlevels=50,
            quiet=2,
            stripdir=str(root),
            prependdir="/",
            invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
        )
