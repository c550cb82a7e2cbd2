"""Notices changes of the files that a configuration was read from."""

import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from otel_zernel.config.expand import CannotExpand, ReadText, read_text

_YOUNG_NS = 2_000_000_000
"""A file that was written this recently may change again and keep its time of modification: such times are coarse."""

_Stamp = tuple[int, ...]


@dataclass(slots=True)
class ReadFiles:
    """A `ReadText` that remembers the content of each file, also of files that it could not read."""

    read: ReadText = read_text
    digests: dict[str, str] = field(default_factory=dict)
    """By path."""

    def __call__(self, path: str) -> str:
        try:
            text = self.read(path)
        except CannotExpand as error:
            self.digests[path] = str(error)
            raise
        self.digests[path] = _digest(text)
        return text


class FileWatch:
    """Compares files with their content when they were read. Blocks, so it is called in a thread.

    It follows symbolic links each time, so it notices when Kubernetes exchanges the folder of a ConfigMap. A file is
    read only if its inode, size or times changed, or if it was written in the last seconds. Pipes are not watched:
    reading them again would give nothing.
    """

    def __init__(self, files: ReadFiles, time_ns: Callable[[], int]) -> None:
        self._files = files
        self._time_ns = time_ns
        self._known: dict[str, tuple[_Stamp, str]] = {}

    def changed(self) -> dict[str, str]:
        """The digests of the files whose content is not the one that was read, by path."""
        present = {path: self._present(path, before) for path, before in list(self._files.digests.items())}
        return {path: digest for path, digest in present.items() if digest != self._files.digests.get(path)}

    def _present(self, path: str, before: str) -> str:
        try:
            status = Path(path).stat()
        except (OSError, ValueError):
            return _content(path)
        if not stat.S_ISREG(status.st_mode):
            return before
        stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        known = self._known.get(path)
        if known is None or known[0] != stamp or self._time_ns() - status.st_mtime_ns < _YOUNG_NS:
            known = self._known[path] = stamp, _content(path)
        return known[1]


def _content(path: str) -> str:
    try:
        return _digest(read_text(path))
    except CannotExpand as error:
        return str(error)


def _digest(text: str) -> str:
    import hashlib  # loads OpenSSL

    return hashlib.sha256(text.encode()).hexdigest()
