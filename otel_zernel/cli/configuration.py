"""The arguments `--config` and `--set`, and the settings that they describe."""

import argparse
import os
from typing import TYPE_CHECKING

from otel_zernel.cli.output import WrongUsage
from otel_zernel.config.expand import ReadText, read_text
from otel_zernel.runtime.garbage import collection_deferred

if TYPE_CHECKING:
    from otel_zernel.config.schema import Settings


def add_config(parser: argparse.ArgumentParser) -> None:
    """Adds `--config`, `--set`, and configurations without an option."""
    # One list for both, so that the order on the command line is that of the merge.
    parser.add_argument(
        "config", nargs="*", action="extend", default=[], metavar="URI", help="the same as --config URI"
    )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="URI",
        help="a path, file:PATH, env:NAME, yaml:TEXT, or - for standard input, which a reload does not read again; "
        "may be repeated: all are merged, and later values win",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override one value, such as exporters.file.path=out.jsonl, receivers.csv.files.0=a.csv (an item of a "
        """list) or exporters.prometheus.const_labels."a.b"=x (a key with dots); the value is YAML; may be repeated""",
    )


def needed_sources(options: argparse.Namespace) -> list[str]:
    """The URIs of the configuration, in the order in which they are merged.

    Raises `WrongUsage` if there is neither one nor a `--set`.
    """
    if options.config or options.set:
        return list(options.config)
    raise WrongUsage(f"{options.command} needs a configuration, such as --config config.yaml")


def settings(options: argparse.Namespace, read: ReadText = read_text, *, look_at_files: bool = False) -> "Settings":
    """The valid settings of `--config` and `--set`. Raises `ConfigError` with every mistake, or `WrongUsage`.

    `look_at_files` as for `read_settings`.
    """
    uris = needed_sources(options)
    with collection_deferred():  # modules, classes and settings are no garbage
        from otel_zernel.config.schema import read_settings
        from otel_zernel.registry import Registry

        registry = Registry.installed()
        return read_settings(uris, options.set, os.environ, registry, read, look_at_files=look_at_files)
