"""`otel-zernel completion`: prints the completions of bash, zsh and fish."""

from otel_zernel_commands.completion.command import CompletionCommand as CompletionCommand
from otel_zernel_commands.completion.described import PROGRAM as PROGRAM
from otel_zernel_commands.completion.described import DescribedArgument as DescribedArgument
from otel_zernel_commands.completion.described import DescribedCommand as DescribedCommand
from otel_zernel_commands.completion.described import described_commands as described_commands
from otel_zernel_commands.completion.described import every_command as every_command
