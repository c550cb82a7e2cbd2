"""Printing of errors and warnings."""

import sys

from otel_zernel.text import without_secrets


def fail(first: str, *more: str) -> int:
    """Prints an error to stderr, with an indented line for each of `more`. Returns the exit status."""
    print(without_secrets("\n  ".join((f"Error: {first}", *more))), file=sys.stderr)
    return 1


def print_warning(text: str) -> None:
    """Prints a warning to stderr."""
    print(without_secrets(f"Warning: {text}"), file=sys.stderr)
