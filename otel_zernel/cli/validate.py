"""`otel-zernel validate`: checks a configuration."""

import argparse

from otel_zernel.cli.configuration import add_config, settings


class ValidateCommand:
    """Prints the mistakes of a configuration."""

    name = "validate"
    help = "check the configuration, and print only its mistakes"
    description: str | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_config(parser)

    def run(self, options: argparse.Namespace) -> int:
        settings(options)
        return 0
