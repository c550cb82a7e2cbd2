"""The paths of files to probe, without symbolic links."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

_OTHER_ROOT = re.compile(r"/proc/\d+/root(?=/)")
_MOST_LINKS = 40
"""MAXSYMLINKS of Linux."""


def real_path(path: str) -> str:
    """The path without symbolic links. `/proc/PID/root`, the root of another container, stays in front.

    To `os.path.realpath` it is a link to `/`: the result would be a file of the collector's own container.
    Raises `OSError`.
    """
    match = _OTHER_ROOT.match(path)
    if match is None:
        return os.path.realpath(path)
    root = match[0]
    try:
        Path(root).stat()
    except PermissionError as error:
        raise PermissionError(f"{root} cannot be read; grant the collector the capability CAP_SYS_PTRACE") from error
    return real_path_below(root, path[match.end() :])


def real_path_below(root: str, path: str) -> str:
    """The path without symbolic links, where `/` is `root`. Raises `OSError` if it has too many."""
    left, found, links = path.split("/")[::-1], [root], 0
    while left:
        name = left.pop()
        here = Path(*found, name)
        if name in ("", "."):
            continue
        if name == "..":
            found = found[:-1] or [root]
        elif not here.is_symlink():
            found.append(name)
        elif links == _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), root + path)
        else:
            links += 1
            target = str(here.readlink())
            found = [root] if target.startswith("/") else found
            left += target.split("/")[::-1]
    return "/".join(found)
