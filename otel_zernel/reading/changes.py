"""Hints by the kernel, which files in a folder changed: inotify."""

import os
from collections.abc import Iterable
from typing import Any

# inotify(7)
_MODIFY, _MOVED_TO, _CREATE, _OVERFLOW, _IGNORED = 0x2, 0x80, 0x100, 0x4000, 0x8000


class FolderChanges:
    """Watches folders for files that grow or appear.

    The hints are not complete: the kernel gives none for changes by other machines, and none beyond the limits of
    `fs.inotify`. So they only shorten the wait for the next listing. Used by one thread at a time.
    """

    def __init__(self) -> None:
        self._inotify: Any = None
        self._folders: dict[int, str] = {}
        """By the number of the watch."""

    def watch(self, folders: Iterable[str]) -> None:
        """Watches these folders too. A folder that cannot be watched is left out."""
        try:
            self._inotify = self._inotify or _open_inotify()
        except (ImportError, OSError):  # not Linux, or no descriptor is left
            return
        for folder in folders:
            try:
                self._folders[self._inotify.add_watch(folder or ".", _MODIFY | _CREATE | _MOVED_TO)] = folder
            except OSError:
                continue

    def changed(self) -> tuple[set[str], set[str]]:
        """The names of the files that grew, and of those that appeared, since the last call.

        The names are below the folders as they were given. An empty name stands for any number of unknown files.
        """
        grown: set[str] = set()
        new: set[str] = set()
        for event in self._inotify.read(timeout=0) if self._inotify else ():
            folder = self._folders.get(event.wd)
            if folder is None or event.mask & (_OVERFLOW | _IGNORED):
                new.add("")
            else:
                names = new if event.mask & (_CREATE | _MOVED_TO) else grown
                names.add(os.path.join(folder, event.name))  # noqa: PTH118  # as `list_files` does
        return grown, new

    def close(self) -> None:
        """Safe to call twice."""
        if self._inotify is not None:
            self._inotify.close()
        self._inotify = None
        self._folders.clear()


def _open_inotify() -> Any:
    from inotify_simple import INotify  # only Linux has it, and only followers need it

    return INotify()
