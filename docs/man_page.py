"""Writes the manual page from the parser of the command line: `make docs`. The wheel has it in share/man/man1."""

import re
from collections.abc import Iterator
from pathlib import Path

from otel_zernel import __version__
from otel_zernel.command import Command
from otel_zernel_commands.completion import (
    PROGRAM,
    DescribedArgument,
    DescribedCommand,
    described_commands,
    every_command,
)

PAGE = Path(__file__).with_name("otel-zernel.1")
_EXIT_CODES = Path(__file__).with_name("reference.md")


def page() -> str:
    """The page in roff."""
    commands = described_commands(own_commands())
    lines = [
        f'.TH OTEL-ZERNEL 1 "" "otel-zernel {__version__}" "User Commands"',
        *(".SH NAME", r"otel\-zernel \- why is the training slow?"),
        *(".SH SYNOPSIS", rf"\fB{_plain(PROGRAM)}\fR \fICOMMAND\fR [\fIOPTION\fR]..."),
        ".SH DESCRIPTION",
        _plain(
            "Looks at running training jobs from outside, and says where their time goes. It is also an OpenTelemetry "
            "collector with receivers, processors and exporters for machine-learning training."
        ),
        ".SH COMMANDS",
        *(line for command in commands for line in _command(command)),
        ".SH EXIT STATUS",
        *(line for code, meaning in _exit_codes() for line in (".TP", rf"\fB{code}\fR", _plain(meaning))),
        ".SH ENVIRONMENT",
        *(".TP", r"\fBNO_COLOR\fR", "Without colours, if it is set."),
        *(".TP", r"\fBCOLUMNS\fR", "The width of the output, if it is no terminal."),
    ]
    return "\n".join(lines) + "\n"


def own_commands() -> list[Command]:
    """The commands of this package, whatever other packages are installed."""
    return [command for command in every_command() if type(command).__module__.startswith("otel_zernel")]


def _command(command: DescribedCommand) -> Iterator[str]:
    yield f".SS {_plain(' '.join(command.words))}"
    yield _plain(command.usage)
    yield ".PP"
    yield _plain(" ".join((command.text or f"{command.help[:1].upper()}{command.help[1:]}.").split()))
    for argument in command.arguments:
        if argument.names != ("-h", "--help"):
            yield from (".TP", _term(argument), _plain(f"{argument.help[:1].upper()}{argument.help[1:]}."))


def _term(one: DescribedArgument) -> str:
    value = f" \\fI{_plain(one.value)}\\fR" if one.value else ""
    return f"\\fB{', '.join(map(_plain, one.names))}\\fR{value}" if one.names else value.strip()


def _exit_codes() -> Iterator[tuple[str, str]]:
    """The rows of the table in docs/reference.md."""
    table = _EXIT_CODES.read_text("utf-8").partition("\n## Exit codes\n")[2].partition("\n## ")[0]
    for code, meaning in re.findall(r"^\| ([\d, ]+) \| (.*) \|$", table, re.MULTILINE):
        yield code, f"{meaning[:1].upper()}{meaning[1:].rstrip('.')}."


def _plain(text: str) -> str:
    """The text without characters of roff's own."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("\u2026", "...").replace("`", "")
    return re.sub(r"^([.'])", r"\\&\1", text)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
