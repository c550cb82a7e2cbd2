"""`otel-zernel print-config`: prints the effective configuration."""

import argparse
import os

from otel_zernel.cli.configuration import add_config, needed_sources
from otel_zernel.cli.output import print_result
from otel_zernel.command import Command


class PrintConfigCommand(Command):
    """Prints the configuration after merging and expansion."""

    name = "print-config"
    help = "print the configuration after merging and expansion"
    description: str | None = """Prints the configuration after merging and expansion, as YAML. If it is invalid,
prints the merged text before expansion, and the mistakes to stderr; the exit status is then 1."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_config(parser)
        modes = ("redacted", "unredacted")
        parser.add_argument(
            "--defaults", action="store_true", help="also print the options that are not set, and describe each one"
        )
        parser.add_argument("--mode", choices=modes, default="redacted", help="redacted, the default, hides secrets")

    def run(self, options: argparse.Namespace) -> int:
        from otel_zernel.errors import ConfigError

        redacted = options.mode == "redacted"
        try:
            print_result(_valid(options, redacted))
        except ConfigError:
            print_result(_merged(options, redacted))
            raise
        return 0


def _valid(options: argparse.Namespace, redacted: bool) -> str:
    from otel_zernel.config.defaults import with_defaults
    from otel_zernel.config.load import load
    from otel_zernel.config.schema import validate
    from otel_zernel.config.show import show
    from otel_zernel.registry import Registry

    loaded = load(needed_sources(options), options.set, os.environ)
    settings = validate(loaded, Registry.installed(), os.environ)
    if options.defaults:
        return with_defaults(settings, loaded.tree["service"], redacted)
    return show(loaded, settings, redacted)


def _merged(options: argparse.Namespace, redacted: bool) -> str:
    """The files and overrides that can be read, merged. Empty if there are none."""
    from otel_zernel.config.load import merge_all
    from otel_zernel.config.show import show_unchecked

    layer, _ = merge_all(needed_sources(options), options.set, os.environ)
    return show_unchecked(layer.tree, redacted) if layer.tree else ""
