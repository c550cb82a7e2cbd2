"""docs/tutorial.md is executed."""

import re
import shlex
from pathlib import Path

from docs.catalogue import ROOT
from tests.core.cli.running import command

PAGE = ROOT / "docs" / "tutorial.md"


def commands() -> list[list[str]]:
    """The command lines that need no root."""
    blocks = re.findall(r"^```\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("otel-zernel ")]


def test_its_commands_work_in_their_order(tmp_path: Path) -> None:
    first, *others = commands()
    assert first == ["demo"]  # test_terminal_session.py runs it
    assert len(others) == 3
    for line in others:
        arguments, _, target = (" ".join(line)).partition(" > ")
        done = command(*arguments.split(), folder=tmp_path)
        assert done.returncode in (0, 4), done.stderr  # 4: too few steps to know a change
        if target:
            (tmp_path / target).write_text(done.stdout)
    assert (tmp_path / "report.html").stat().st_size > 10_000
    assert "no change beyond the noise" in done.stdout or "too few steps" in done.stdout
