"""The contract of a command that another package adds to `otel-zernel`, and the installed ones.

An entry point of the group `otel_zernel.commands` names the command and its class. The command line imports the class
only to run the command, or to list it in `--help`. So its module imports little, and `run` imports the rest.
"""

import argparse
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoints, entry_points
from typing import TYPE_CHECKING, Self

from otel_zernel.errors import CannotStart
from otel_zernel.text import one_line, quoted

if TYPE_CHECKING:
    from otel_zernel.component import Finding

GROUP = "otel_zernel.commands"
"""The group of entry points."""


class Command(ABC):
    """One command, such as `otel-zernel why`. The command line constructs it without arguments."""

    name: str
    """The word after `otel-zernel`. It is also the name of the entry point."""
    help: str
    """One line for `otel-zernel --help`."""
    description: str | None = None
    """The text above the options in the command's own `--help`."""
    starts_program: bool = False
    """Whether the words behind `--` are the command line of a program that it starts. They are `options.program`: a
    list, or None without `--`."""

    @abstractmethod
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Adds the command's options. The names `command`, `config` and `program` belong to the command line."""

    @abstractmethod
    def run(self, options: argparse.Namespace) -> int:
        """Runs the command and returns the exit status.

        Prints its result to stdout. Raises `CannotStart` or `ConfigError` with sentences for the user: the command
        line prints them to stderr, and the exit status is 1.
        """

    def outlook(self, findings: "Mapping[str, Sequence[Finding]]") -> str:
        """A line for the end of `doctor`: whether the command can run on this machine, by the findings of all
        components. Empty without such a line."""
        return ""


Load = Callable[[], object]


class Commands:
    """The commands of installed packages, by name. A class is imported when it is loaded."""

    def __init__(self, entries: Mapping[str, Load]) -> None:
        self._entries = entries

    @classmethod
    def installed(cls, find: Callable[..., EntryPoints] = entry_points) -> Self:
        """The commands of all installed packages. If two packages define one, the first on `sys.path` wins."""
        entries: dict[str, Load] = {}
        for point in find(group=GROUP):
            entries.setdefault(point.name, point.load)
        return cls(entries)

    @property
    def names(self) -> list[str]:
        """The names of all commands, sorted."""
        return sorted(self._entries)

    def needed_by(self, words: Sequence[str]) -> list[Command]:
        """The commands that a parser of these arguments needs, unless the collector itself has the command: the one
        that the first names, or all, for `--help` and for messages about a wrong command."""
        first = words[0] if words else ""
        return [self.load(name) for name in ([first] if first in self._entries else self.names)]

    def all(self) -> list[Command]:
        """All commands."""
        return [self.load(name) for name in self.names]

    def load(self, name: str) -> Command:
        """The command. If its package is broken, the command says so. Raises KeyError for an unknown name."""
        load = self._entries[name]
        try:
            cls = load()
        except Exception as error:  # noqa: BLE001  # the import of a third-party module may raise anything
            sentence = f"command {quoted(name)} cannot be imported: {type(error).__name__}: {one_line(error)}"
            return BrokenCommand(name, sentence)
        if not (isinstance(cls, type) and issubclass(cls, Command)):
            sentence = f"command {quoted(name)} is not a Command: its entry point names {one_line(cls)}"
            return BrokenCommand(name, sentence)
        return cls()


class BrokenCommand(Command):
    """Stands for a command whose package is broken."""

    def __init__(self, name: str, sentence: str) -> None:
        self.name = name
        self.help = sentence.replace("%", "%%")
        self._sentence = sentence

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)

    def run(self, options: argparse.Namespace) -> int:
        raise CannotStart(self._sentence)
