"""The command line. Each command is a module, which imports the collector only when the command runs."""

from otel_zernel.cli.command_line import main as main
