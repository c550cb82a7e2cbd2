"""Gives the next version to every file that names the present one, and to the changes that have none yet."""

import datetime
import re
import subprocess
from pathlib import Path
from typing import Final

from deploy.image.python_packages import PROJECT, version

_PLACES: Final = r"otel[-_]zernel(?:-bcc)?[-:_ ]|newTag: |[vV]ersion: |\bversion = \"|__version__ = \""
"""What stands before a version of this project."""
_NEW: Final = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
_UNRELEASED: Final = "## [Unreleased]\n"


class CannotCut(Exception):
    """The message says why."""


def with_version(text: str, before: str, after: str) -> str:
    """The text with the version replaced where it is that of this project."""
    return re.sub(rf"({_PLACES}){re.escape(before)}(?![\d.]\d)", rf"\g<1>{after}", text)


def with_section(changelog: str, after: str, day: datetime.date) -> str:
    """The change log whose unreleased changes are those of a version. Raises `CannotCut`."""
    changes = changelog.partition(_UNRELEASED)[2].partition("\n## [")[0].strip()
    if not changes:
        raise CannotCut("CHANGELOG.md has no unreleased changes")
    return changelog.replace(_UNRELEASED, f"{_UNRELEASED}\n## [{after}] - {day.isoformat()}\n", 1)


def cut(after: str, day: datetime.date, root: Path = PROJECT) -> list[Path]:
    """Changes the files of a checkout, and returns them. Raises `CannotCut`."""
    if not _NEW.fullmatch(after):
        raise CannotCut(f"{after} is no version such as 0.2.0 or 0.2.0rc1")
    before, changed = version(), []
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    for path in (root / name for name in listed.split("\0") if name and not name.startswith("tests/")):
        try:
            text = path.read_text("utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        new = with_version(text, before, after)
        if path.name == "CHANGELOG.md" and path.parent == root:
            new = with_section(new, after, day)
        if new != text:
            path.write_text(new, "utf-8")
            changed.append(path)
    return changed
