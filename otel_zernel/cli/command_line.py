"""The command `otel-zernel`: finds the command, parses its arguments, and runs it.

An error is printed to stderr as `Error: …`. The exit status is 2 for a wrong command line, and 1 for other errors.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from otel_zernel import __version__
from otel_zernel.cli.commands import COMMANDS
from otel_zernel.cli.output import WrongUsage, discard_stdout, fail, print_result
from otel_zernel.command import Command, Commands
from otel_zernel.errors import CannotStart, ConfigError
from otel_zernel.text import quoted, suggestion


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status. Without `arguments`, it uses the arguments of the process."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if words[0] == "help":
        words = [*words[1:2], "--help"]
    if words[0].startswith(("--config", "--set")):
        words.insert(0, "run")  # as in the OpenTelemetry Collector, which has no `run` command
    try:
        options = _parsed(words)
        status: int = options.run(options)
    except WrongUsage as error:
        fail(str(error), "Run 'otel-zernel --help' for usage.")
        return 2
    except ConfigError as error:
        return fail("invalid configuration:", *map(str, error.problems))
    except CannotStart as error:
        return fail(*str(error).splitlines())
    except BrokenPipeError:  # the reader has closed the pipe, as in `otel-zernel components | head`
        discard_stdout()
        return 1
    return status


def _parsed(words: list[str]) -> argparse.Namespace:
    """The options. Raises `WrongUsage`, or `SystemExit` after `--help` and for mistakes that argparse reports."""
    core = [command.name for command in COMMANDS]
    is_core = bool(words) and words[0] in core
    others = None if is_core else Commands.installed()
    if others and words and not words[0].startswith("-") and words[0] not in others.names:
        raise WrongUsage(f"unknown command {quoted(words[0])}{suggestion(words[0], core + others.names, 'commands')}")
    commands = [*COMMANDS, *(others.needed_by(words) if others else [])]
    program: list[str] | None = None
    if "--" in words and any(command.name == words[0] and command.starts_program for command in commands):
        words, program = words[: words.index("--")], words[words.index("--") + 1 :]
    parser, known = parser_of(commands)
    valid = known.get(words[0], ["--help", "--version"]) if words else []
    # A mistyped option first: argparse may take its value for something else, such as a PID.
    unknown = [word for word in words if word.startswith("--") and word.partition("=")[0] not in (*valid, "--")]
    if not unknown:
        options, unknown = parser.parse_known_args(words, argparse.Namespace(program=program))
    if unknown:
        option = unknown[0].partition("=")[0]
        raise WrongUsage(f"unknown argument {quoted(option)}{suggestion(option, valid, 'options')}")
    return options


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"Error: {message}\nRun '{self.prog} --help' for usage.\n")

    def _print_message(self, message: str, file: Any = None) -> None:
        """Prints the help or the version like a result. argparse hides that it cannot be written."""
        if file is sys.stdout:
            print_result(message)
        else:
            super()._print_message(message, file)


def parser_of(commands: Iterable[Command]) -> tuple[argparse.ArgumentParser, dict[str, list[str]]]:
    """The parser, and the long options of each command."""
    parser = _Parser(
        prog="otel-zernel",
        description="Says why machine-learning training is slow. It is also an OpenTelemetry collector.",
        epilog="Start with `otel-zernel demo`. As a collector: otel-zernel run --config config.yaml",
    )
    parser.add_argument("-v", "--version", action="version", version=f"otel-zernel version {__version__}")
    parsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    options: dict[str, list[str]] = {}
    for command in commands:
        of_command = parsers.add_parser(command.name, help=command.help, description=command.description)
        command.add_arguments(of_command)
        options[command.name] = _long_options(of_command)
        of_command.set_defaults(run=command.run, known=options[command.name])
    return parser, options


def _long_options(parser: argparse.ArgumentParser) -> list[str]:
    """Those of the parser, and of its own commands."""
    inner = [
        choice for action in parser._actions if isinstance(action.choices, dict) for choice in action.choices.values()
    ]
    own = [name for name in parser._option_string_actions if name.startswith("--")]
    return list(dict.fromkeys([*own, *(name for parser in inner for name in _long_options(parser))]))
