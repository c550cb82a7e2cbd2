"""The arguments `--config` and `--set`, and the settings that they describe."""

import argparse
import os
from typing import TYPE_CHECKING

from otel_zernel.config.expand import ReadText, read_text
from otel_zernel.runtime.garbage import collection_deferred

if TYPE_CHECKING:
    from otel_zernel.config.schema import Settings


def add_config(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Adds `--config` and `--set`."""
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        required=required,
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


def settings(options: argparse.Namespace, read: ReadText = read_text, *, look_at_files: bool = False) -> "Settings":
    """The valid settings of `--config` and `--set`. Raises `ConfigError` with every mistake.

    `look_at_files` as for `read_settings`.
    """
    with collection_deferred():  # modules, classes and settings are no garbage
        from otel_zernel.config.schema import read_settings
        from otel_zernel.registry import Registry

        registry = Registry.installed()
        return read_settings(options.config, options.set, os.environ, registry, read, look_at_files=look_at_files)
