"""The headers of the kernel, with which BCC compiles every program."""

from __future__ import annotations

import os
import platform
from pathlib import Path

_MODULES = Path("/lib/modules")
_ARCHIVE = Path("/sys/kernel/kheaders.tar.xz")
_ARCHITECTURES = {"x86_64": "x86", "aarch64": "arm64"}


def installed() -> bool:
    """Whether BCC finds headers of the running kernel by itself."""
    return _source(_MODULES / os.uname().release) is not None or _ARCHIVE.exists()


def use(folder: Path) -> list[str] | None:
    """Lets BCC use the headers in a folder: a tree of headers, or a folder like /lib/modules/RELEASE.

    Returns the compiler's flags for them, or None if the folder has no headers. Debian splits them into `source` and
    `build`; BCC itself finds both only for the running kernel.
    """
    source = _source(folder)
    if source is None:
        return None
    os.environ["BCC_KERNEL_SOURCE"] = str(source)
    build = folder / "build"
    return [] if not build.is_dir() or source == build else [f"-I{build}/{path}" for path in _generated()]


def _source(folder: Path) -> Path | None:
    """The folder in which BCC's own test for headers succeeds."""
    candidates = (folder / "source", folder / "build", folder)
    return next((candidate for candidate in candidates if (candidate / "include/linux/kconfig.h").is_file()), None)


def _generated() -> list[str]:
    machine = platform.machine()
    arch = f"arch/{_ARCHITECTURES.get(machine, machine)}/include"
    return ["include", "include/generated/uapi", arch, f"{arch}/generated", f"{arch}/generated/uapi"]
