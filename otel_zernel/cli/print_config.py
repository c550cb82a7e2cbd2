"""`otel-zernel print-config`: prints the effective configuration."""

import argparse
import os

from otel_zernel.cli.configuration import add_config


class PrintConfigCommand:
    """Prints the configuration after merging and expansion."""

    name = "print-config"
    help = "print the configuration after merging and expansion"
    description: str | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_config(parser)
        modes = ("redacted", "unredacted")
        parser.add_argument("--mode", choices=modes, default="redacted", help="redacted, the default, hides secrets")

    def run(self, options: argparse.Namespace) -> int:
        from otel_zernel.config.load import load
        from otel_zernel.config.schema import validate
        from otel_zernel.config.show import show
        from otel_zernel.registry import Registry

        loaded = load(options.config, options.set, os.environ)
        settings = validate(loaded, Registry.installed(), os.environ)
        print(show(loaded, settings, redacted=options.mode == "redacted"), end="")
        return 0
