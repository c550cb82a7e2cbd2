"""The values of options that several commands have."""

import argparse
from collections.abc import Callable

from otel_zernel.text import one_line, quoted

_SLOWEST, _FASTEST = 0.01, 1000.0


def duration(shortest: str, longest: str) -> Callable[[str], float]:
    """The type of an option for a duration in this range: `30s`, `5m`, or a number of seconds."""

    def seconds_of(text: str) -> float:
        from otel_zernel.types import parse_duration  # with pydantic, which `--help` does not need

        try:
            seconds = parse_duration(f"{text}s" if text.replace(".", "", 1).isdecimal() else text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(one_line(error)) from error
        if not parse_duration(shortest) <= seconds <= parse_duration(longest):
            raise argparse.ArgumentTypeError(f"{quoted(text)} is not from {shortest} to {longest}")
        return seconds

    return seconds_of


def speed(text: str) -> float:
    """The pace of a recording: 1 is the recorded one."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not _SLOWEST <= number <= _FASTEST:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a number from {_SLOWEST:g} to {_FASTEST:g}")
    return number


def share(most: float) -> Callable[[str], float]:
    """The type of an option for a share from 0 to `most`."""

    def share_of(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = -1.0
        if not 0 <= number <= most:
            raise argparse.ArgumentTypeError(f"{quoted(text)} is not a share from 0 to {most:.0f}, such as 0.05")
        return number

    return share_of


def port(text: str) -> int:
    """The number of a port."""
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a port; use a number from 1 to 65535")
    return int(text)
