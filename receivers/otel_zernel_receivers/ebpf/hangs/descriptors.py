"""What the descriptors of a process are: a file and its mount, the peer of a socket, the child at a pipe.

Only links and texts of /proc are read. They need no answer of the file system or the peer, which may never come.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address
from itertools import islice
from typing import Final, NamedTuple

from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder
from otel_zernel_receivers.ebpf.processes.scanner import as_text

_LONGEST_LIST: Final = 5_000
"""Lines of a list of sockets or mounts that are read. They take 10 ms."""
_MOST_NAMED: Final = 4
_LISTENING: Final = "0A"
_TCP_INODE: Final = 9
_UNIX_INODE: Final = 6
"""The columns of the lists of sockets."""
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")
_CREDENTIALS: Final = re.compile("(?<=//)[^/]*@")
"""Some file systems have them in the source of a mount: `https://me:secret@host/`."""
_OF_KERNEL: Final = ("/dev/", "/proc/", "/sys/")


class Described(NamedTuple):
    """The object of a wait."""

    activity: Activity
    text: str
    """`/data/train.bin (nfs of storage:/data)`, `a socket of 10.0.0.7:29500`; empty if it is not known."""


NOT_KNOWN: Final = Described(Activity.UNKNOWN, "")


class _Mount(NamedTuple):
    point: str
    kind: str
    source: str

    def __str__(self) -> str:
        return f"{self.kind} of {self.source}" if "/" in self.source else self.kind


class Descriptors:
    """The descriptors of one process at one moment."""

    def __init__(self, folder: ProcessFolder, children: Mapping[int, ProcessFolder]) -> None:
        self._folder, self._children = folder, children

    def describe(self, number: int, place: str) -> Described:
        """What a descriptor is. `place` is the function of the kernel in which a thread waits for it."""
        try:
            target = as_text(str((self._folder.path / "fd" / str(number)).readlink()))
        except OSError:
            return NOT_KNOWN
        if target.startswith("socket:["):
            return Described(Activity.SOCKET, self._sockets.get(target[8:-1], "a socket"))
        if target.startswith("pipe:["):
            return Described(Activity.PIPE, self._pipe(target))
        if not target.startswith("/"):  # an event counter, a timer or the like
            return NOT_KNOWN
        if "pipe" in place:
            return Described(Activity.PIPE, f"the pipe {target}")
        if target.startswith(_OF_KERNEL):
            return Described(Activity.UNKNOWN, target)
        return Described(Activity.FILE, self._file(target, self._mounts.get(self._mount_of(number))))

    def describe_path(self, path: str) -> Described:
        """A file by its path."""
        mounts = [mount for mount in self._mounts.values() if f"{path}/".startswith(f"{mount.point.rstrip('/')}/")]
        return Described(Activity.FILE, self._file(path, max(mounts, key=lambda mount: len(mount.point), default=None)))

    def watched_by(self, number: int) -> list[int]:
        """The descriptors that an epoll watches."""
        with suppress(OSError):
            lines = (self._folder.path / "fdinfo" / str(number)).read_text().splitlines()
            return [int(line.split()[1]) for line in lines[:_LONGEST_LIST] if line.startswith("tfd:")]
        return []

    def _file(self, path: str, mount: _Mount | None) -> str:
        return f"{path} ({mount})" if mount else path

    def _mount_of(self, number: int) -> int:
        with suppress(OSError, ValueError):
            for line in (self._folder.path / "fdinfo" / str(number)).read_text().splitlines():
                if line.startswith("mnt_id:"):
                    return int(line.split()[1])
        return 0

    @cached_property
    def _mounts(self) -> dict[int, _Mount]:
        """By their numbers in the mount namespace of the process."""
        mounts = {}
        with suppress(OSError, ValueError):
            for line in self._lines("mountinfo"):
                before, _, after = line.partition(" - ")
                number, _, _, _, point, *_ = before.split()
                kind, source, *_ = after.split()
                mounts[int(number)] = _Mount(_plain(point), kind, _CREDENTIALS.sub("", _plain(source)))
        return mounts

    @cached_property
    def _sockets(self) -> dict[str, str]:
        """The sockets of its network namespace, by inode."""
        sockets = {}
        for name in ("net/tcp", "net/tcp6"):
            with suppress(OSError, ValueError):
                for line in islice(self._lines(name), 1, None):  # the first one has the names of the columns
                    fields = line.split()
                    if len(fields) > _TCP_INODE:
                        is_listening = fields[3] == _LISTENING
                        peer = _address(fields[1 if is_listening else 2])
                        sockets[fields[_TCP_INODE]] = (
                            f"connections to {peer}" if is_listening else f"a socket of {peer}"
                        )
        with suppress(OSError):
            for line in self._lines("net/unix"):
                fields = line.split(maxsplit=_UNIX_INODE + 1)
                if len(fields) > _UNIX_INODE + 1:
                    sockets[fields[_UNIX_INODE]] = f"the local socket {fields[-1].strip()}"
        return sockets

    def _pipe(self, target: str) -> str:
        link = target.encode()
        holders = [child for child in self._children.values() if link in _targets(child)]
        if not holders:
            return "a pipe"
        named = ", ".join(f"{child.pid} ({child.name})" for child in holders[:_MOST_NAMED])
        more = f" and {len(holders) - _MOST_NAMED} more" if len(holders) > _MOST_NAMED else ""
        return f"a pipe of {'children' if len(holders) > 1 else 'child'} {named}{more}"

    def _lines(self, name: str) -> Iterator[str]:
        with (self._folder.path / name).open(errors="replace") as file:
            yield from islice(file, _LONGEST_LIST)


def _targets(folder: ProcessFolder) -> Iterable[bytes]:
    try:
        return set(folder.open_files())
    except OSError:
        return ()


def _address(text: str) -> str:
    """`127.0.0.1:29500` for `0100007F:733C`."""
    host, _, port = text.partition(":")
    words = [bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8)]
    if len(words) == 1:
        return f"{IPv4Address(words[0])}:{int(port, 16)}"
    address = IPv6Address(b"".join(words))
    return f"{address.ipv4_mapped or f'[{address}]'}:{int(port, 16)}"


def _plain(text: str) -> str:
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
