"""`otel-zernel run`: runs the collector."""

import argparse

from otel_zernel.cli.configuration import add_config, settings
from otel_zernel.command import Command
from otel_zernel.config.expand import read_text
from otel_zernel.runtime.garbage import collection_deferred


class RunCommand(Command):
    """Runs the collector until a signal stops it."""

    name = "run"
    help = "run the collector until SIGTERM or Ctrl-C stops it"
    description: str | None = None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_config(parser)
        parser.add_argument(
            "--watch", action="store_true", help="reload when a configuration file changes, as SIGHUP does"
        )
        parser.add_argument(
            "--exit-when-done", action="store_true", help="exit when every receiver has read all its input"
        )

    def run(self, options: argparse.Namespace) -> int:
        with collection_deferred():  # modules and classes are no garbage
            from otel_zernel.config.watch import ReadFiles
            from otel_zernel.engine.process import run

        watched = ReadFiles() if options.watch else None
        read = watched or read_text
        return run(lambda: settings(options, read), exit_when_done=options.exit_when_done, watched=watched)
