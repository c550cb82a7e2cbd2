"""The site has a page for every Markdown file, and its navigation names files that exist."""

import re
from pathlib import Path

import pytest

from docs import metrics
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
    assert "](docs/metrics.md)" in readme, "a module is named by the page that it makes"
    assert (tmp_path / "pages/docs/metrics.md").read_text("utf-8") == metrics.page()


@pytest.mark.parametrize("sample", [*ROOT.glob("*/otel_zernel_*/*/sample.yaml")], ids=lambda path: path.parent.name)
def test_a_readme_shows_the_sample_of_its_component_once(sample: Path, tmp_path: Path) -> None:
    page = sample.with_name("README.md")
    collect(tmp_path / "pages", [page])
    text = (tmp_path / "pages" / page.relative_to(ROOT)).read_text("utf-8")
    assert text.count(sample.read_text("utf-8").strip()) == 1
