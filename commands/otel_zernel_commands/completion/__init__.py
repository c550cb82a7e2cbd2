"""`otel-zernel completion`: prints the completions of bash, zsh and fish."""

from otel_zernel_commands.completion.command import CompletionCommand
from otel_zernel_commands.completion.described import (
    PROGRAM,
    DescribedArgument,
    DescribedCommand,
    described_commands,
    every_command,
)

__all__ = [
    "PROGRAM",
    "CompletionCommand",
    "DescribedArgument",
    "DescribedCommand",
    "described_commands",
    "every_command",
]
