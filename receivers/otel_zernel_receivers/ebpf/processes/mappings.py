"""Files that a process executes: found in /proc/PID/maps, and opened without being fooled.

    for mapping in executable_mappings(maps):          # what the process says it maps
        file = locate(proc_root, pid, mapping)         # where the collector can open that, and which inode it is
    with open_located(file) as fd:                     # that inode, or FileNotFoundError
        link = attach(bpf, mode, f"/proc/self/fd/{fd}", places)

A path in maps is one in the process's mount namespace: it is opened below /proc/PID/root, and must lead to the inode
that is mapped. Where it does not (deleted, replaced), /proc/PID/map_files does, for those with CAP_CHECKPOINT_RESTORE
or CAP_SYS_ADMIN, and CAP_DAC_READ_SEARCH for processes of other users. Folders above it that are closed to us are no
hindrance for an executable, nor for what lies below the process's working folder.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from otel_zernel_receivers.ebpf.processes.file_identity import FileIdentity, identity_of

_EXECUTABLE = re.compile(
    rb"^([0-9a-f]+)-([0-9a-f]+) ..x. ([0-9a-f]+) ([0-9a-f]+:[0-9a-f]+) ([0-9]+) +(/.*)$", re.MULTILINE
)
_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True)
class Range:
    """Addresses `start` to `end` of a process show a file from `offset` on (bytes)."""

    start: int
    end: int
    offset: int


@dataclass(frozen=True, slots=True)
class Mapping:
    """A file that a process has mapped executable, as /proc/PID/maps tells it."""

    path: str
    device: str
    inode: int
    deleted: bool
    ranges: tuple[Range, ...]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class LocatedFile:
    """A mapped file that the collector can open."""

    identity: FileIdentity
    source: str
    """The path by which the collector opens it. Other files may take its place: use `open_located`."""


def executable_mappings(maps: bytes) -> list[Mapping]:
    """Files mapped executable in the text of a /proc/PID/maps, each once, in the order of their addresses."""
    ranges: dict[tuple[str, str, int], list[Range]] = {}
    for start, end, offset, device, inode, path in _EXECUTABLE.findall(maps):
        key = os.fsdecode(path).replace("\\012", "\n"), device.decode(), int(inode)
        ranges.setdefault(key, []).append(Range(int(start, 16), int(end, 16), int(offset, 16)))
    return [
        Mapping(path.removesuffix(_DELETED), device, inode, path.endswith(_DELETED), tuple(of_file))
        for (path, device, inode), of_file in ranges.items()
    ]


def locate(proc_root: Path, pid: int, mapping: Mapping) -> LocatedFile:
    """Where the collector can open a mapped file. Raises OSError where it cannot."""
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
        if not file.identity.on_overlay:  # an overlay's maps and files may differ in their inode numbers
            raise
        return file


@contextmanager
def open_located(file: LocatedFile) -> Iterator[int]:
    """A descriptor of exactly this file. Raises OSError: FileNotFoundError if there is another one by now."""
    with _opened(file.source) as fd:
        if identity_of(fd) != file.identity:
            raise FileNotFoundError(errno.ENOENT, "another file has taken its place", file.source)
        yield fd


def _shortcuts(process: Path, mapping: Mapping) -> Iterator[str]:
    """Ways that lead past the folders above a file, which may be closed to us: homes mostly are."""
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
    """Only regular files; and never waits, as it would for the writer of a FIFO in the file's place."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise FileNotFoundError(errno.ENOENT, "not a regular file", path)
        yield fd
    finally:
        os.close(fd)
