"""What the parser of the command line knows about each command, for the completions and the manual page."""

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from otel_zernel.cli.command_line import parser_of
from otel_zernel.cli.commands import COMMANDS
from otel_zernel.command import Command, Commands

PROGRAM = "otel-zernel"


@dataclass(frozen=True, slots=True)
class DescribedArgument:
    """An option, or a positional argument, which has no names."""

    names: tuple[str, ...]
    value: str
    """The word for its value in capitals, such as FILE; empty for a flag."""
    help: str
    choices: tuple[str, ...] = ()
    """Its only values."""
    repeats: bool = False
    """Whether it takes any number of values."""

    @property
    def is_path(self) -> bool:
        """Whether the value may be a path."""
        return self.value in ("FILE", "DIR", "URI", "SOURCE", "BEFORE AFTER")


@dataclass(frozen=True, slots=True)
class DescribedCommand:
    """A command, or an action of one."""

    words: tuple[str, ...]
    """`why`, or `queue` and `inspect`."""
    help: str
    text: str
    """Its description and its epilog."""
    usage: str
    """On one line: the options are `[OPTION]...`."""
    arguments: tuple[DescribedArgument, ...]


def every_command() -> list[Command]:
    """The commands of the collector and those of installed packages, in the order of `otel-zernel --help`."""
    return [*COMMANDS, *Commands.installed().all()]


def described_commands(commands: Iterable[Command]) -> list[DescribedCommand]:
    """All commands, each before its actions."""
    return list(_described(parser_of(commands)[0], ()))


def _described(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> Iterator[DescribedCommand]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, child in action.choices.items():
                text = "\n\n".join(filter(None, (child.description, child.epilog)))
                arguments = tuple(_arguments(child))
                usage = " ".join((PROGRAM, *words, name, "[OPTION]...", *map(_usage, child._get_positional_actions())))
                help_ = helps.get(name, "").replace("%%", "%")
                yield DescribedCommand((*words, name), help_, text, usage, arguments)
                yield from _described(child, (*words, name))


def _usage(positional: argparse.Action) -> str:
    word = str(positional.metavar or positional.dest.upper())
    return {"?": f"[{word}]", "*": f"[{word}]..."}.get(str(positional.nargs), word)


def _arguments(parser: argparse.ArgumentParser) -> Iterator[DescribedArgument]:
    expand = parser._get_formatter()._expand_help
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction):
            continue
        help_ = expand(action) if action.help else ""
        choices = tuple(map(str, action.choices or ()))
        if isinstance(action.metavar, tuple):
            value = " ".join(action.metavar)
        else:
            value = action.metavar or action.dest.upper() if action.nargs != 0 else ""
        yield DescribedArgument(tuple(action.option_strings), value, help_, choices, action.nargs in ("*", "+"))
