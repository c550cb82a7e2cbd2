"""The recorded session of the README is what the command prints today."""

import json

from docs import terminal_session
from docs.catalogue import ROOT


def test_the_recording_and_its_picture_are_those_of_now() -> None:
    recorded = terminal_session.cast(terminal_session.output())
    assert terminal_session.CAST.read_text("utf-8") == recorded, "run `python -m docs.terminal_session`"
    assert terminal_session.PICTURE.read_text("utf-8") == terminal_session.picture(recorded)


def test_the_readme_shows_the_picture() -> None:
    assert "](docs/demo.svg)" in (ROOT / "README.md").read_text("utf-8")


def test_a_recording_is_in_the_format_of_asciinema() -> None:
    header, *events = map(json.loads, terminal_session.CAST.read_text("utf-8").splitlines())
    assert header["version"] == 2
    assert header["width"] == 80
    times = [time for time, _, _ in events]
    assert times == sorted(times)
    assert {kind for _, kind, _ in events} == {"o"}


def test_a_style_ends_where_its_text_ends() -> None:
    recorded = terminal_session.cast("a \x1b[1;33mb\x1b[0m <c>\n")
    shown = terminal_session.picture(recorded)
    assert 'font-weight="bold" fill="#e5c07b" xml:space="preserve">b</text>' in shown
    assert ">&lt;c&gt;</text>" in shown
