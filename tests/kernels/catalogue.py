"""The kernels to boot, and the attach mode that must work on each."""

from dataclasses import dataclass
from typing import Literal

Architecture = Literal["x86_64", "aarch64"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of a Debian release."""

    version: str
    """The first two numbers, such as `6.1`."""
    architecture: Architecture
    release: str
    """The Debian release. Of its packages for this kernel, the one with the highest version is used."""
    mode: str | None
    """The best attach mode that must work; None if the receiver must report that the kernel is too old."""

    @property
    def name(self) -> str:
        return f"{self.version}-{self.architecture}"

    @property
    def debian_architecture(self) -> str:
        return {"x86_64": "amd64", "aarch64": "arm64"}[self.architecture]


KERNELS = (
    Kernel("5.10", "x86_64", "bullseye", None),
    Kernel("6.1", "x86_64", "bookworm", "perf"),
    Kernel("6.12", "x86_64", "trixie", "multi"),
    Kernel("7", "x86_64", "sid", "session"),
    Kernel("6.1", "aarch64", "bookworm", "perf"),
    Kernel("6.12", "aarch64", "trixie", "multi"),
)
"""From old to new. `7` stands for the newest Linux 7, which needs the object `session_ctx`."""


def named(name: str) -> Kernel:
    """The kernel of this name. Raises KeyError with the existing names."""
    found = {kernel.name: kernel for kernel in KERNELS}
    if name not in found:
        raise KeyError(f"no kernel {name!r}; choose from {', '.join(found)}")
    return found[name]
