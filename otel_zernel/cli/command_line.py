"""The command `otel-zernel`: finds the command, parses its arguments, and runs it.

As in the OpenTelemetry Collector, an error is printed to stderr as `Error: …`, and the exit status is 1.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from otel_zernel import __version__
from otel_zernel.cli.components import ComponentsCommand
from otel_zernel.cli.doctor import DoctorCommand
from otel_zernel.cli.output import fail
from otel_zernel.cli.print_config import PrintConfigCommand
from otel_zernel.cli.queue import QueueCommand
from otel_zernel.cli.run import RunCommand
from otel_zernel.cli.validate import ValidateCommand
from otel_zernel.command import Command, Commands
from otel_zernel.errors import CannotStart, ConfigError

_COMMANDS: tuple[Command, ...] = (
    RunCommand(),
    ValidateCommand(),
    ComponentsCommand(),
    DoctorCommand(),
    PrintConfigCommand(),
    QueueCommand(),
)
"""In the order of `otel-zernel --help`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status. Without `arguments`, it uses the arguments of the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0].startswith(("--config", "--set")):
        words.insert(0, "run")  # as in the OpenTelemetry Collector, which has no `run` command
    is_core = bool(words) and words[0] in {command.name for command in _COMMANDS}
    installed = [] if is_core else Commands.installed().needed_by(words)
    options = _parser([*_COMMANDS, *installed]).parse_args(words)
    try:
        status: int = options.run(options)
    except ConfigError as error:
        return fail("invalid configuration:", *map(str, error.problems))
    except CannotStart as error:
        return fail(*str(error).splitlines())
    except BrokenPipeError:  # the reader has closed the pipe, as in `otel-zernel components | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(1, f"Error: {message}\nRun '{self.prog} --help' for usage.\n")


def _parser(commands: Iterable[Command]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="otel-zernel",
        description="An OpenTelemetry collector for machine-learning training.",
        epilog="Example: otel-zernel run --config config.yaml",
    )
    parser.add_argument("-v", "--version", action="version", version=f"otel-zernel version {__version__}")
    parsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in commands:
        of_command = parsers.add_parser(command.name, help=command.help, description=command.description)
        command.add_arguments(of_command)
        of_command.set_defaults(run=command.run)
    return parser
