"""The command: its options, and the addresses of the gateway."""

import argparse
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from otel_zernel.command import Command
from otel_zernel.errors import CannotStart

if TYPE_CHECKING:
    from otel_zernel.config.schema import Settings

_ENDPOINT = "localhost:8080"

_DESCRIPTION = """Answers requests about the metrics in a store of the sql exporter: pages of points, aggregates, hosts
and GPUs, as JSON, CSV or Arrow. A page in the browser describes the routes and tries them. Any number of gateways may
serve one store. They only read. Ctrl-C ends it."""


class ApiCommand(Command):
    """`otel-zernel api`."""

    name = "api"
    help = "answer requests about the metrics in a store over HTTP"
    description = _DESCRIPTION

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        source = parser.add_mutually_exclusive_group(required=True)
        source.add_argument(
            "--store",
            metavar="URL",
            help="sqlite:///path or postgresql://user@host:port/database; its password is in PGPASSWORD",
        )
        source.add_argument(
            "--config",
            action="append",
            metavar="URI",
            help="a configuration with the extensions api and query; may be repeated: all are merged",
        )
        parser.add_argument(
            "--endpoint", metavar="HOST:PORT", help=f"with --store: the address to listen on (default {_ENDPOINT})"
        )

    def run(self, options: argparse.Namespace) -> int:
        from otel_zernel.engine.process import run

        read = _reading(options)
        settings = read()
        try:
            return run(read, on_ready=lambda: _print_addresses(settings))
        except CannotStart as error:
            if options.store and error.address_is_taken:
                endpoint = options.endpoint or _ENDPOINT
                raise CannotStart(f"another program has {endpoint}: choose another port with --endpoint") from error
            raise


def _reading(options: argparse.Namespace) -> "Callable[[], Settings]":
    from otel_zernel.cli.output import WrongUsage
    from otel_zernel.registry import Registry
    from otel_zernel_commands.api.configuration import file_settings, store_settings

    installed = Registry.installed()
    if options.store:
        return lambda: store_settings(options.store, options.endpoint or _ENDPOINT, os.environ, installed)
    if options.endpoint:
        raise WrongUsage("--endpoint needs --store: with --config, set extensions::api::endpoint")
    return lambda: file_settings(options.config, os.environ, installed)


def _print_addresses(settings: "Settings") -> None:
    from otel_zernel_commands.api.configuration import bases

    lines = [line for base in bases(settings) for line in (f"API: {base}/api/v1", f"Page: {base}/swagger/index.html")]
    print("\n".join([*lines, "Ctrl-C ends it."]), file=sys.stderr, flush=True)
