"""Printing of results, errors and warnings."""

import os
import sys

from otel_zernel.errors import CannotStart
from otel_zernel.text import without_secrets


class WrongUsage(Exception):
    """The command line is wrong. The message is a sentence for the user."""


def require_stdout() -> None:
    """Raises `CannotStart` if stdout is closed."""
    if sys.stdout is None:
        raise CannotStart("standard output is closed, and the result needs it: redirect it to a file")


def print_result(text: str) -> None:
    """Prints lines to stdout now. Raises `CannotStart` if stdout cannot take them, such as a file on a full disk."""
    require_stdout()
    try:
        print(text, end="\n" if text and not text.endswith("\n") else "", flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_stdout()
        raise CannotStart(f"cannot write the result to standard output: {error.strerror}") from error


def discard_stdout() -> None:
    """Drops the rest of the output. Otherwise Python reports at its exit that it cannot write it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(first: str, *more: str) -> int:
    """Prints an error to stderr, with an indented line for each of `more`. Returns the exit status."""
    print(without_secrets("\n  ".join((f"Error: {first}", *more))), file=sys.stderr)
    return 1


def print_warning(text: str) -> None:
    """Prints a warning to stderr."""
    print(without_secrets(f"Warning: {text}"), file=sys.stderr)
