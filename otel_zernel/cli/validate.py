"""`otel-zernel validate`: checks a configuration."""

import argparse

from otel_zernel.cli.configuration import add_config, settings
from otel_zernel.cli.output import fail, print_warning
from otel_zernel.command import Command


class ValidateCommand(Command):
    """Prints the mistakes of a configuration, and warnings about what its author probably does not want."""

    name = "validate"
    help = "check the configuration, and print its mistakes and warnings"
    description: str | None = """Checks the configuration, and prints its mistakes and warnings to stderr. It starts
nothing, but it looks at the files that the configuration names. The exit status is 1 if there is a mistake, or, with
--strict, a warning; else 0."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_config(parser)
        parser.add_argument("--strict", action="store_true", help="treat warnings as errors")

    def run(self, options: argparse.Namespace) -> int:
        warnings = settings(options, look_at_files=True).warnings
        if warnings and options.strict:
            return fail("the configuration has warnings, which --strict does not allow:", *warnings)
        for warning in warnings:
            print_warning(warning)
        return 0
