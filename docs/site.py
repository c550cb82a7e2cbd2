"""Collects the pages of the documentation site: `make site`. The pages are the Markdown files of the repository."""

import re
import shutil
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
_LEFT_OUT = frozenset({"build", "dist", "tests"})
_LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)(#[^)\s]*)?\)")


def pages() -> list[Path]:
    """The Markdown files of the repository, without those of tests."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    inside = [page for folder in folders if folder.name not in _LEFT_OUT for page in folder.rglob("*.md")]
    return sorted([*ROOT.glob("*.md"), *inside])


def collect(target: Path, first: Iterable[Path]) -> None:
    """Copies the pages and all files that they name into a new folder. A link to a folder leads to its README."""
    shutil.rmtree(target, ignore_errors=True)
    waiting, known = list(first), set(first)
    while waiting:
        source = waiting.pop()
        copy = target / source.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix != ".md":
            shutil.copyfile(source, copy)
            continue
        text = source.read_text("utf-8")
        copy.write_text(_LINK.sub(partial(_link, source), text), "utf-8")
        for link in _LINK.finditer(text):
            named = _named(source, link[1])
            if named and named not in known:
                known.add(named)
                waiting.append(named)


def _named(page: Path, link: str) -> Path | None:
    """The file behind a link; None for a folder without a README."""
    path = (page.parent / link).resolve()
    if path.is_dir():
        path /= "README.md"
    return path if path.is_file() else None


def _link(page: Path, link: re.Match[str]) -> str:
    if (page.parent / link[1]).is_dir():
        return f"]({link[1].rstrip('/')}/README.md{link[2] or ''})" if _named(page, link[1]) else "]"
    return link[0]


if __name__ == "__main__":
    collect(Path(sys.argv[1]).resolve(), pages())
