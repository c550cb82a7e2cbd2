"""Collects the pages of the documentation site: `make site`.

The pages are the Markdown files of the repository, and pages that a module makes. A link to the module leads to its
page. A README shows the sample to which it links, and its tables of GPU names.
"""

import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from docs import commands, gpu_tables, messages, metrics, peers

ROOT = Path(__file__).parents[1]
MADE: Mapping[Path, Callable[[], str]] = {
    ROOT / "docs/commands.py": commands.page,
    ROOT / "docs/messages.py": messages.page,
    ROOT / "docs/metrics.py": metrics.page,
    ROOT / "docs/peers.py": peers.page,
}
"""The modules that make a page, which stands beside them."""
_LEFT_OUT = frozenset({"build", "dist", "tests"})
_LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)(#[^)\s]*)?\)")
_SAMPLE = re.compile(r"^.*\]\(sample\.yaml\)(?:.|\n(?!\n))*\n", re.MULTILINE)
"""The paragraph with the link to a sample."""


def pages() -> list[Path]:
    """The Markdown files of the repository, without those of tests, and the pages that modules make."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    inside = [page for folder in folders if folder.name not in _LEFT_OUT for page in folder.rglob("*.md")]
    return sorted([*ROOT.glob("*.md"), *inside, *(module.with_suffix(".md") for module in MADE)])


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
        text = _text(source)
        copy.write_text(_LINK.sub(partial(_link, source), text), "utf-8")
        for link in _LINK.finditer(text):
            named = _named(source, link[1])
            if named and named not in known:
                known.add(named)
                waiting.append(named)


def _text(page: Path) -> str:
    """The Markdown of a page, with the sample and the tables of its component."""
    module, sample = page.with_suffix(".py"), page.with_name("sample.yaml")
    text = MADE[module]() if module in MADE else gpu_tables.filled(page, page.read_text("utf-8"))
    if not sample.is_file():
        return text
    block = f"\n```yaml\n{sample.read_text('utf-8').strip()}\n```\n"
    return _SAMPLE.sub(lambda paragraph: paragraph[0] + block, text, count=1)


def _named(page: Path, link: str) -> Path | None:
    """The file behind a link, or the page that it makes; None for a folder without a README."""
    path = (page.parent / link).resolve()
    if path in MADE:
        return path.with_suffix(".md")
    if path.is_dir():
        path /= "README.md"
    return path if path.is_file() else None


def _link(page: Path, link: re.Match[str]) -> str:
    path = page.parent / link[1]
    if path.resolve() in MADE:
        return f"]({link[1].removesuffix('.py')}.md{link[2] or ''})"
    if path.is_dir():
        return f"]({link[1].rstrip('/')}/README.md{link[2] or ''})" if _named(page, link[1]) else "]"
    return link[0]


if __name__ == "__main__":
    collect(Path(sys.argv[1]).resolve(), pages())
