"""Commands of other packages."""

import argparse
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from otel_zernel.command import GROUP, Command, Commands
from otel_zernel.errors import CannotStart


class Hello(Command):
    """A command of somebody else's."""

    name = "hello"
    help = "say hello"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--to")

    def run(self, options: argparse.Namespace) -> int:
        return len(options.to)


def installed(**values: str) -> Commands:
    points = EntryPoints(EntryPoint(name, value, GROUP) for name, value in values.items())
    return Commands.installed(lambda group: points.select(group=group))


def test_a_command_of_a_package_runs() -> None:
    commands = installed(hello=f"{__name__}:Hello")
    command, parser = commands.load("hello"), argparse.ArgumentParser()
    command.add_arguments(parser)
    assert commands.names == ["hello"]
    assert command.run(parser.parse_args(["--to", "you"])) == 3


def test_a_listed_command_is_not_imported() -> None:
    assert installed(broken="no_such_module:Broken").names == ["broken"]


def test_a_command_that_cannot_be_imported_is_one_sentence() -> None:
    with pytest.raises(CannotStart, match='command "broken" cannot be imported: ModuleNotFoundError'):
        installed(broken="no_such_module:Broken").load("broken")


def test_an_entry_point_must_name_a_command() -> None:
    with pytest.raises(CannotStart, match='command "path" is not a Command'):
        installed(path="pathlib:Path").load("path")


def test_why_is_installed() -> None:
    assert Commands.installed().load("why").name == "why"
