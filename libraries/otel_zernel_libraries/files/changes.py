"""Hints by the kernel, which files in a folder changed, came and went: inotify."""

import os
from collections.abc import Iterable
from typing import Any

# inotify(7)
_MODIFY, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x40, 0x80, 0x100, 0x200
_OVERFLOW, _IGNORED, _IS_FOLDER = 0x4000, 0x8000, 0x40000000
_WATCHED = _MODIFY | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE


class FolderChanges:
    """Watches folders for files that grow or appear.

    The hints are not complete: the kernel gives none for changes by other machines, and none beyond the limits of
    `fs.inotify`. So they only shorten the wait for the next listing. Used by one thread at a time.
    """

    def __init__(self) -> None:
        self.gone: dict[str, str] = {}
        """The names that files lost between the last two calls of `changed`, and the files' new names.

        The new name is empty for a file that was removed, or moved to a folder that is not watched.
        """
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
                self._folders[self._inotify.add_watch(folder or ".", _WATCHED)] = folder
            except OSError:
                continue

    def changed(self) -> tuple[set[str], set[str]]:
        """The names of the files that grew, and of those that appeared, since the last call.

        The names are below the folders as they were given. An empty name stands for any number of unknown files.
        """
        grown: set[str] = set()
        new: set[str] = set()
        moving: dict[int, str] = {}
        self.gone = {}
        for event in self._inotify.read(timeout=0) if self._inotify else ():
            folder = self._folders.get(event.wd)
            if folder is None or event.mask & (_OVERFLOW | _IGNORED):
                new.add("")
                continue
            name = os.path.join(folder, event.name)  # noqa: PTH118  # as `list_files` does
            if event.mask & (_MOVED_FROM | _DELETE):
                if not event.mask & _IS_FOLDER:
                    moving[event.cookie] = first = next((old for old, now in self.gone.items() if now == name), name)
                    self.gone[first] = ""
            elif event.mask & (_CREATE | _MOVED_TO):
                new.add(name)
                if event.mask & _MOVED_TO and event.cookie in moving:
                    self.gone[moving[event.cookie]] = name
            else:
                grown.add(name)
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
