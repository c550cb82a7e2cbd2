"""Files for the person who has called a command, and the parts of a page in one file."""

import base64
import contextlib
import hashlib
import os
from pathlib import Path

from otel_zernel.errors import CannotStart


def check_writable(path: Path) -> None:
    """Raises `CannotStart` now, and not after the work."""
    folder = path.absolute().parent
    if path.is_dir():
        raise CannotStart(f"cannot write {path}: it is a folder; name a file in it")
    if not folder.is_dir():
        raise CannotStart(f"cannot write {path}: there is no folder {folder}; create it, or name another file")
    if not os.access(folder, os.W_OK):
        raise CannotStart(f"cannot write {path}: this user may not write into {folder}; name a file in another folder")


def write_for_caller(path: Path, content: bytes) -> None:
    """Writes a file. Under sudo it belongs to the user who has called it. Raises OSError."""
    path.write_bytes(content)
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() == 0 and user.isdecimal() and group.isdecimal():
        with contextlib.suppress(OSError):
            os.chown(path, int(user), int(group), follow_symlinks=False)


def inline_hash(text: str) -> str:
    """The source expression of Content-Security-Policy that allows this inline text."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def inline_json(text: str) -> str:
    """JSON for a block of data: no text in it can end the block, or begin markup."""
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
