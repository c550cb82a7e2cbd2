"""Finds the files that a process has mapped executable, and opens exactly the mapped file.

    for mapping in executable_mappings(maps):          # the text of /proc/PID/maps
        file = locate(proc_root, pid, mapping)         # a path that the collector can open, and the file's identity
    with open_located(file) as fd:                     # the same file, or FileNotFoundError
        link = attach(bpf, mode, f"/proc/self/fd/{fd}", points)

A path in maps is valid in the process's mount namespace. It is opened below /proc/PID/root, and must lead to the mapped
inode. A deleted or replaced file is opened by /proc/PID/map_files, which needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN,
and CAP_DAC_READ_SEARCH for processes of other users. If the collector may not enter a folder of the path, it opens an
executable by /proc/PID/exe, and files below the process's working folder by /proc/PID/cwd.
"""

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from otel_zernel_receivers.ebpf.processes.files.file_identity import FileIdentity, identity_of

_EXECUTABLE = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) ..x. ([0-9a-f]+) ([0-9a-f]+:[0-9a-f]+) ([0-9]+) +(/.*)$", re.MULTILINE
)
# An executable mapping without a file, or of private huge pages, and the mapping after it, which has a file. A library
# begins at offset 0 of its file, and its data comes after its code.
_REPLACED = re.compile(
    rb"^[0-9a-f]+-([0-9a-f]+) ..x. [0-9a-f]+ [0-9a-f]+:[0-9a-f]+ [0-9]+(?: +(?:\[anon.*|/anon_hugepage.*)?)?\n"
    rb"(?=(\1)-([0-9a-f]+) .... (?!0+ )([0-9a-f]+) ([0-9a-f]+:[0-9a-f]+) ([0-9]+) +(/.*)$)",
    re.MULTILINE,
)
_DELETED = " (deleted)"
_MEMFD = "memfd:"
"""The name of a file from memfd_create(2) begins with it: `/memfd:libcudart.so.12 (deleted)`."""


@dataclass(frozen=True, slots=True)
class Range:
    """Addresses `start` to `end` of a process map a file from `offset` (bytes) on."""

    start: int
    end: int
    offset: int


@dataclass(frozen=True, slots=True)
class Mapping:
    """A file that a process has mapped executable, as in /proc/PID/maps."""

    path: str
    device: str
    inode: int
    deleted: bool
    ranges: tuple[Range, ...]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2].removeprefix(_MEMFD)

    @property
    def is_in_memory(self) -> bool:
        """Whether a program has made the file in memory, under any name."""
        return self.path.startswith(f"/{_MEMFD}")


@dataclass(frozen=True, slots=True)
class LocatedFile:
    """A mapped file that the collector can open."""

    identity: FileIdentity
    source: str
    """The path by which the collector opens it. The path may lead to another file later: use `open_located`."""


def executable_mappings(maps: bytes) -> list[Mapping]:
    """The files mapped executable in the text of a /proc/PID/maps, each once, in the order of their addresses."""
    return _mappings(_EXECUTABLE.findall(maps))


def replaced_mappings(maps: bytes) -> list[Mapping]:
    """The files whose code, or a part of it, the process has replaced by a copy in memory without a file.

    Programs do so to put their code on huge pages. Probes on the file do not hit in the copy.
    """
    return _mappings(match[1:] for match in _REPLACED.findall(maps))


def _mappings(rows: Iterable[Sequence[bytes]]) -> list[Mapping]:
    ranges: dict[tuple[str, str, int], list[Range]] = {}
    for start, end, offset, device, inode, path in rows:
        key = os.fsdecode(path).replace("\\012", "\n"), device.decode(), int(inode)
        ranges.setdefault(key, []).append(Range(int(start, 16), int(end, 16), int(offset, 16)))
    return [
        Mapping(path.removesuffix(_DELETED), device, inode, path.endswith(_DELETED), tuple(of_file))
        for (path, device, inode), of_file in ranges.items()
    ]


def locate(proc_root: Path, pid: int, mapping: Mapping) -> LocatedFile:
    """A path by which the collector can open a mapped file. Raises OSError if it cannot."""
    process = proc_root / str(pid)
    path, link = f"{process}/root{mapping.path}", _link_to(process, mapping)
    if mapping.deleted:
        return _located(link)
    for way in (path, *_shortcuts(process, mapping)):
        with suppress(FileNotFoundError, PermissionError), _opened(way) as fd:
            if os.fstat(fd).st_ino == mapping.inode:
                return LocatedFile(identity_of(fd), way)
    try:
        return _located(link)
    except OSError:
        file = _located(path)
        if not file.identity.on_overlay:  # on overlayfs, maps and files may show different inode numbers
            raise
        return file


@contextmanager
def open_located(file: LocatedFile) -> Iterator[int]:
    """A descriptor of exactly this file. Raises OSError; FileNotFoundError if the path leads to another file now."""
    with _opened(file.source) as fd:
        if identity_of(fd) != file.identity:
            raise FileNotFoundError(errno.ENOENT, "the path leads to another file now", file.source)
        yield fd


def _shortcuts(process: Path, mapping: Mapping) -> Iterator[str]:
    """Paths that avoid the folders above a file, which the collector may not be allowed to enter, such as homes."""
    with suppress(OSError):
        if (process / "exe").readlink() == Path(mapping.path):
            yield f"{process}/exe"
    with suppress(OSError, ValueError):
        yield f"{process}/cwd/{Path(mapping.path).relative_to((process / 'cwd').readlink())}"


def _link_to(process: Path, mapping: Mapping) -> str:
    first = mapping.ranges[0]
    return f"{process}/map_files/{first.start:x}-{first.end:x}"


def _located(source: str) -> LocatedFile:
    with _opened(source) as fd:
        return LocatedFile(identity_of(fd), source)


@contextmanager
def _opened(path: str) -> Iterator[int]:
    """Opens regular files only. Never waits: opening a FIFO would wait for its writer."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise FileNotFoundError(errno.ENOENT, "not a regular file", path)
        yield fd
    finally:
        os.close(fd)
