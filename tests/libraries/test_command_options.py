"""Options that several commands have mean the same in each."""

import argparse

import pytest

from otel_zernel_commands.completion import described_commands, every_command
from otel_zernel_libraries.command_options import duration, port, speed

SECONDS = duration("100ms", "1m")


@pytest.mark.parametrize(("text", "seconds"), [("5", 5.0), ("0.5", 0.5), ("5s", 5.0), ("1m", 60.0), ("100ms", 0.1)])
def test_a_number_alone_is_seconds(text: str, seconds: float) -> None:
    assert SECONDS(text) == seconds


@pytest.mark.parametrize("text", ["61", "0", "-1", "5 s", "five", "", "nan", "1e1"])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        SECONDS(text)


@pytest.mark.parametrize("text", ["0", "1001", "nan", "fast"])
def test_a_speed_has_bounds(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a number from"):
        speed(text)
    with pytest.raises(argparse.ArgumentTypeError, match="is not a port"):
        port(text if text != "1001" else "65536")


def test_why_live_and_watch_share_the_options_for_a_job_and_a_recording() -> None:
    commands = {
        described_command.words[0]: described_command for described_command in described_commands(every_command())
    }
    options = {
        name: {names: argument.value for argument in commands[name].arguments for names in argument.names}
        for name in ("why", "live", "watch")
    }
    shared = {"--replay": "FILE", "--job": "NAME", "--pid": "PID", "-p": "PID"}
    assert {name: {**shared, **of_command} for name, of_command in options.items()} == options
    assert options["live"]["--interval"] == options["watch"]["--interval"] == "DURATION"
    assert options["why"]["--no-color"] == options["watch"]["--no-color"] == ""
