"""The site has a page for every Markdown file, and its navigation names files that exist."""

import re
from pathlib import Path

from docs.site import ROOT, collect, pages

CONFIGURATION = (ROOT / "docs/mkdocs.yml").read_text("utf-8")


def test_the_navigation_names_pages() -> None:
    named = re.findall(r": ([\w./-]+\.md)$", CONFIGURATION, re.MULTILINE)
    assert len(named) > 30
    assert [name for name in named if ROOT / name not in pages()] == []


def test_every_linked_file_is_collected(tmp_path: Path) -> None:
    collect(tmp_path / "pages", pages())
    assert (tmp_path / "pages/docs/live_page.png").is_file()
    assert (tmp_path / "pages/examples/training.yaml").is_file()
    readme = (tmp_path / "pages/README.md").read_text("utf-8")
    assert "](receivers/otel_zernel_receivers/ebpf/README.md)" in readme, "a folder is named by its README"
