"""Mounted filesystems, from /proc/mounts and statvfs(3).

A call to a filesystem of a lost server may hang for ever: it has a thread of its own.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

from otel_zernel_receivers.host.config import FilesystemConfig, selects
from otel_zernel_receivers.host.linux.files import FileReader, HostFiles
from otel_zernel_receivers.host.metrics import DEVICE, FS_MODE, FS_STATE, FS_TYPE, MOUNT
from otel_zernel_receivers.host.reading import PointAttributes, Reading

T = TypeVar("T")
_Call = tuple["Future[Any]", Callable[[], Any]]


class HangingCalls:
    """Runs calls in a daemon thread. A call that hangs costs a thread, and is not repeated until it has returned."""

    def __init__(self, name: str, timeout: float) -> None:
        """`timeout` in seconds."""
        self._name = name
        self._timeout = timeout
        self._queue: SimpleQueue[_Call] | None = None
        self._hung: dict[str, Future[Any]] = {}

    def call(self, key: str, function: Callable[[], T]) -> T:
        """The result of the function. Raises TimeoutError if it hangs, or if the last call with this key still does."""
        hung = self._hung.get(key)
        if hung and not hung.done():
            raise TimeoutError
        future: Future[T] = Future()
        self._ready().put((future, function))
        try:
            return future.result(self._timeout)
        except TimeoutError:
            if not future.done():  # else the function raised it
                self._hung[key] = future
                self._queue = None
            raise

    def _ready(self) -> "SimpleQueue[_Call]":
        """The queue of a thread that does not hang."""
        if self._queue is None:
            self._queue = SimpleQueue()
            threading.Thread(target=self._work, args=(self._queue,), name=self._name, daemon=True).start()
        return self._queue

    def _work(self, queue: "SimpleQueue[_Call]") -> None:
        """Ends after a call that hung: another thread has taken over."""
        while True:
            future, function = queue.get()
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001  # raised again in `call`
                future.set_exception(error)
            if self._queue is not queue:
                return


_VIRTUAL = frozenset(
    {
        *("autofs", "binder", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs"),
        *("devfs", "devpts", "devtmpfs", "efivarfs", "fuse.lxcfs", "fusectl", "hugetlbfs", "mqueue"),
        *("none", "nsfs", "overlay", "proc", "pstore", "ramfs", "rootfs", "rpc_pipefs"),
        *("securityfs", "selinuxfs", "squashfs", "sysfs", "tmpfs", "tracefs"),
    }
)
"""Types without a disk or a server behind them, and read-only images. Filesystems of a network are not virtual."""
_REAL_MOUNTS = frozenset({("overlay", "/"), ("tmpfs", "/dev/shm")})  # noqa: S108  # the queues of DataLoader workers
"""Mounts of virtual types that can become full: the root of a container, and shared memory."""
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of /proc/mounts."""

    device: str
    point: str
    type: str
    mode: str
    """`rw` or `ro`."""

    @property
    def is_virtual(self) -> bool:
        return self.type in _VIRTUAL and (self.type, self.point) not in _REAL_MOUNTS

    @property
    def attributes(self) -> PointAttributes:
        return (DEVICE, self.device), (MOUNT, self.point), (FS_MODE, self.mode), (FS_TYPE, self.type)


def parse_mounts(text: str) -> Iterator[Mount]:
    """The mounts in the text of /proc/mounts: see fstab(5)."""
    for line in text.splitlines():
        device, point, type_, options, *_ = (_ESCAPE.sub(_unescaped, word) for word in line.split(" "))
        yield Mount(device, point, type_, "ro" if "ro" in options.split(",") else "rw")


def _unescaped(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 8))


class FilesystemReader(FileReader[FilesystemConfig]):
    """Reads the space of filesystems. Each filesystem is reported once, at its first mount."""

    def __init__(self, config: FilesystemConfig, files: HostFiles) -> None:
        super().__init__(config, files)
        self._calls = HangingCalls("statvfs", config.mount_timeout)
        self._denied: set[Mount] = set()
        """Reported as problems already."""

    def read(self, problems: list[str]) -> Iterator[Reading]:
        mounts = self._selected()
        most = self._config.max_filesystems
        if len(mounts) > most:
            self._limit.exceeded(problems, f"{len(mounts) - most} filesystems", "max_filesystems")
        for mount in mounts[:most]:
            path = os.path.join(self._files.root, mount.point.lstrip("/"))  # noqa: PTH118  # may be a foreign root
            try:
                call = self._calls.call(mount.point, lambda path=path: os.statvfs(path))  # type: ignore[misc]
            except TimeoutError:
                problems.append(f"the filesystem at {mount.point} does not answer")
            except OSError as error:
                if mount not in self._denied:
                    self._denied.add(mount)
                    problems.append(f"the filesystem at {mount.point} cannot be read: {error.strerror}")
            else:
                yield from _of_filesystem(mount, call)

    def _selected(self) -> list[Mount]:
        """The mounts to report, one for each filesystem."""
        try:
            text = self._files.of_machine("mounts")
        except FileNotFoundError:
            text = self._files.text("self/mounts")
        mounts: dict[object, Mount] = {}
        for mount in parse_mounts(text):
            if self._is_selected(mount):
                mounts.setdefault(mount.point if mount.is_virtual else (mount.device, mount.type), mount)
        return list(mounts.values())

    def _is_selected(self, mount: Mount) -> bool:
        config = self._config
        return (
            (config.include_virtual_filesystems or not mount.is_virtual)
            and selects(config.include_devices, config.exclude_devices, mount.device)
            and selects(config.include_fs_types, config.exclude_fs_types, mount.type)
            and selects(config.include_mount_points, config.exclude_mount_points, mount.point)
        )


def _of_filesystem(mount: Mount, usage: os.statvfs_result) -> Iterator[Reading]:
    """Nothing for a filesystem without blocks, such as /proc."""
    if not usage.f_blocks:
        return
    used = usage.f_blocks - usage.f_bfree
    blocks = {"used": used, "free": usage.f_bavail, "reserved": usage.f_bfree - usage.f_bavail}
    for state, count in blocks.items():
        yield Reading("system.filesystem.usage", count * usage.f_frsize, (*mount.attributes, (FS_STATE, state)))
    yield Reading("system.filesystem.limit", usage.f_blocks * usage.f_frsize, mount.attributes)
    available = max(used + usage.f_bavail, 1)
    yield Reading("system.filesystem.utilization", used / available, mount.attributes)
    if usage.f_files:
        inodes = {"used": usage.f_files - usage.f_ffree, "free": usage.f_ffree}
        for state, count in inodes.items():
            yield Reading("system.filesystem.inodes.usage", count, (*mount.attributes, (FS_STATE, state)))
