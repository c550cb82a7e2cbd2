"""The page of commands describes every option, and the READMEs of commands lead to it."""

import re

from docs.catalogue import ROOT
from docs.commands import page
from docs.man_page import own_commands
from otel_zernel_commands.completion import described_commands


def test_every_option_of_every_command_has_a_meaning() -> None:
    arguments = [argument for command in described_commands(own_commands()) for argument in command.arguments]
    assert len(arguments) > 60
    assert [argument.names for argument in arguments if not argument.help] == []
    rows = set(re.findall(r"--[a-z-]+", " ".join(re.findall(r"^\| `(.*?)` \|", page(), re.MULTILINE))))
    assert {name for argument in arguments for name in argument.names if name.startswith("--")} - rows == {"--help"}


def test_the_readmes_lead_to_their_sections() -> None:
    anchors = {heading.replace(" ", "-") for heading in re.findall(r"^## (.*)$", page(), re.MULTILINE)}
    for readme in ROOT.glob("commands/*/*/README.md"):
        assert set(re.findall(r"docs/commands\.py#([\w-]+)", readme.read_text("utf-8"))) <= anchors
