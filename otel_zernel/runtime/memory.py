"""The memory of this process: how much it uses, and how much it may use.

The limit is that of its control groups (v1 and v2), or that of the machine.
"""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_FILES = ("memory.max", "memory.high", "memory.limit_in_bytes")
"""The limits of a group. The kernel slows down and reclaims above `memory.high`, so that counts as a limit too. The
last file is that of version 1."""


def resident_memory(statm: Path = Path("/proc/self/statm")) -> int:
    """Bytes of the process in physical memory. Reading statm takes 6 us, a tenth of asking psutil."""
    try:
        return int(statm.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import psutil  # a system without /proc

        return int(psutil.Process().memory_info().rss)


def memory_limit(root: Path = Path("/")) -> int | None:
    """Bytes: the least limit of this process's control group and of all its parents, at most the physical memory.

    None if not even the physical memory can be read. `root` is the root of the file system.
    """
    limits = [physical_memory(root)]
    for mount in _mounts(root):
        limits += [_limit(folder / name) for folder in _groups(root, mount) for name in _FILES]
    return min((limit for limit in limits if limit is not None), default=None)


def physical_memory(root: Path = Path("/")) -> int | None:
    """The bytes of memory of this machine. None if they cannot be read."""
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemTotal":
            number = value.removesuffix("kB").strip()
            return int(number) * 1024 if number.isdecimal() else None
    return None


class _Mount(NamedTuple):
    """One mounted hierarchy of control groups that may limit memory."""

    point: PurePosixPath
    shown: PurePosixPath
    """The group that is visible at `point`. In a container this is often its own group, not `/`."""
    version: int


def _mounts(root: Path) -> Iterator[_Mount]:
    """Read from proc(5) `mountinfo`: id, parent, device, root, mount point, options, `-`, type, source, options."""
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2" or (kind[0] == "cgroup" and "memory" in kind[2].split(",")):
            version = 2 if kind[0] == "cgroup2" else 1
            yield _Mount(_path(fields[4]), _path(fields[3]), version)


def _groups(root: Path, mount: _Mount) -> Iterator[Path]:
    """The folders of this process's group and of its parents, as far as they are visible."""
    point = root / mount.point.relative_to("/")
    group = _own_group(root, mount.version)
    hidden = ".." in group.parts or not group.is_relative_to(mount.shown)
    below = PurePosixPath() if hidden else group.relative_to(mount.shown)
    yield point / below
    yield from (point / parent for parent in below.parents)


def _own_group(root: Path, version: int) -> PurePosixPath:
    """The group in `/proc/self/cgroup`: lines of hierarchy, controllers and path. Version 2 names no controllers."""
    for line in _lines(root / "proc/self/cgroup"):
        hierarchy, controllers, path = (*line.split(":", 2), "", "")[:3]
        if (hierarchy == "0") if version == 2 else ("memory" in controllers.split(",")):
            return PurePosixPath(path)
    return PurePosixPath("/")


def _limit(file: Path) -> int | None:
    """The bytes in the file. None for `max`, and if it does not exist."""
    text = "".join(_lines(file)).strip()
    return int(text) if text.isdecimal() else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return []


def _path(field: str) -> PurePosixPath:
    r"""The path in a field of `mountinfo`, where `\040` is a space."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, character)
    return PurePosixPath(field)
