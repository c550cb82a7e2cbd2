"""docs/watch.md shows real screens. `ZERNEL_WRITE_GOLDEN=1 pytest tests/commands/watch` writes them anew."""

import os
import re
from pathlib import Path

import pytest

from otel_zernel_commands.watch.command import WatchCommand
from otel_zernel_commands.watch.screens import FeedStatus, WatchView, draw
from otel_zernel_commands.watch.styled import Surface, plain
from tests.commands.watch.made_states import NOW, job_state, rank_id
from tests.commands.watch.svg import as_svg

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/watch.md"
README = ROOT / "commands/otel_zernel_commands/watch/README.md"
STATUS = FeedStatus("localhost:9095", now_ms=NOW)
VIEWS = {
    "watch.svg": (WatchView(selected=rank_id(3)), 110, 28),
    "watch_rank.svg": (WatchView(page="rank", selected=rank_id(3)), 90, 30),
}


@pytest.mark.parametrize("name", VIEWS)
def test_the_picture_is_the_screen_of_now(name: str) -> None:
    view, columns, rows = VIEWS[name]
    picture = as_svg(draw(job_state(8), view, STATUS, Surface(columns, rows)).lines, columns)
    path = ROOT / "docs" / name
    if os.environ.get("ZERNEL_WRITE_GOLDEN"):
        path.write_text(picture, "utf-8")
    assert path.read_text("utf-8") == picture
    assert f"]({name})" in PAGE.read_text("utf-8")


def test_the_text_is_the_screen_of_now() -> None:
    lines = draw(job_state(8), WatchView(), STATUS, Surface(40, 18)).lines
    screen = "\n".join(plain(line).rstrip() for line in lines)
    page = PAGE.read_text("utf-8")
    before, shown, after = re.split(r"(?<=<!-- 40 columns -->\n```\n)(.*?)(?=\n```)", page, maxsplit=1, flags=re.DOTALL)
    if os.environ.get("ZERNEL_WRITE_GOLDEN"):
        PAGE.write_text(before + screen + after, "utf-8")
    assert PAGE.read_text("utf-8") == before + screen + after
    assert shown == screen or os.environ.get("ZERNEL_WRITE_GOLDEN")


def test_the_readme_describes_every_option() -> None:
    import argparse

    parser = argparse.ArgumentParser()
    WatchCommand().add_arguments(parser)
    options = [one for action in parser._actions for one in action.option_strings if one.startswith("--")]
    readme = README.read_text("utf-8")
    assert [one for one in options if one != "--help" and f"`{one}" not in readme] == []
