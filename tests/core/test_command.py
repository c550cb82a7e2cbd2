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


def test_a_command_is_imported_only_if_it_is_needed() -> None:
    commands = installed(broken="no_such_module:Broken", hello=f"{__name__}:Hello")
    assert [one.name for one in commands.needed_by(["hello", "--to", "you"])] == ["hello"]
    assert [one.name for one in commands.needed_by(["--help"])] == ["broken", "hello"]
    assert [one.name for one in commands.needed_by([])] == ["broken", "hello"]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("no_such_module:Broken", 'command "broken" cannot be imported: ModuleNotFoundError'),
        ("pathlib:Path", 'command "broken" is not a Command: its entry point names'),
    ],
)
def test_a_broken_command_says_so_in_one_sentence(value: str, sentence: str) -> None:
    broken, parser = installed(broken=value).load("broken"), argparse.ArgumentParser()
    broken.add_arguments(parser)
    with pytest.raises(CannotStart, match=sentence):
        broken.run(parser.parse_args(["4711"]))
    assert sentence in broken.help


def test_why_is_installed() -> None:
    assert Commands.installed().load("why").name == "why"
