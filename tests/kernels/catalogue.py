"""The kernels to try, and what each must be able to do."""

from dataclasses import dataclass
from typing import Literal

Architecture = Literal["x86_64", "aarch64"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """A Linux of some Debian release."""

    version: str
    """The first two numbers, such as `6.1`."""
    architecture: Architecture
    release: str
    """Debian's release that has it: the package with the highest version there is taken."""
    mode: str | None
    """The best mode that must work; None where the receiver must say that the kernel is too old."""

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
"""From old to new. `7` stands for the newest of Linux 7, whose sessions need an object of their own."""


def named(name: str) -> Kernel:
    """The kernel of this name. Raises KeyError with the names that there are."""
    found = {kernel.name: kernel for kernel in KERNELS}
    if name not in found:
        raise KeyError(f"no kernel {name!r}; there are {', '.join(found)}")
    return found[name]
