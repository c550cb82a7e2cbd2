"""The page of commands and options on the documentation site: `python -m docs.commands` prints it."""

import sys
from collections.abc import Iterator

from docs.fences import table
from docs.man_page import own_commands
from otel_zernel_commands.completion import PROGRAM, DescribedArgument, DescribedCommand, described_commands


def page() -> str:
    """A section for each command, from the parser of the command line."""
    sections = (line for command in described_commands(own_commands()) for line in _section(command))
    return "\n".join(["# Commands and options\n", *sections])


def _section(command: DescribedCommand) -> Iterator[str]:
    yield f"## {PROGRAM} {' '.join(command.words)}\n"
    yield f"```\n{command.usage}\n```\n"
    yield " ".join((command.text or f"{command.help[:1].upper()}{command.help[1:]}.").split()) + "\n"
    arguments = [argument for argument in command.arguments if argument.names != ("-h", "--help")]
    if arguments:
        yield table(["option", "meaning"], [(_term(argument), _escaped(argument.help)) for argument in arguments])


def _term(argument: DescribedArgument) -> str:
    named = ", ".join(argument.names)
    return f"`{_escaped(f'{named} {argument.value}'.strip())}`"


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.stdout.write(page())
