"""The command: its options."""

import argparse
from pathlib import Path

from otel_zernel.command import Command
from otel_zernel_libraries import command_options
from otel_zernel_libraries.job_choice import JobChoice, add_choice, pid_of

_DESCRIPTION = """Shows a training in the terminal: GPUs, processes, where the time of their steps goes, and the
verdict. SOURCE is a collector with the extension api (http://HOST:9095), the older WebSocket feed (ws://HOST:9092), a
recording of the file exporter, or a saved state (.json). Without SOURCE it watches this machine, which needs root and
no configuration; a pid or --job selects one job there. Press ? for the keys. Without a terminal it prints one table."""


class WatchCommand(Command):
    """`otel-zernel watch`."""

    name = "watch"
    help = "show a training in the terminal: of a collector, of a recording, or of this machine"
    description = _DESCRIPTION

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "source", nargs="?", metavar="SOURCE", help="an address, a file or a pid; default: this machine"
        )
        add_choice(parser, has_positional=False)
        parser.add_argument(
            "--replay", metavar="FILE", help="show a recording of the file exporter: the same as SOURCE"
        )
        parser.add_argument(
            "--interval",
            type=command_options.duration("100ms", "1m"),
            default=1.0,
            metavar="DURATION",
            help="time between two updates of the screen (default 1s)",
        )
        parser.add_argument("--once", action="store_true", help="print one table and exit")
        parser.add_argument("--json", action="store_true", help="print the state as JSON and exit")
        parser.add_argument("--no-color", action="store_true", help="no colours; NO_COLOR does the same")
        parser.add_argument("--token-file", type=Path, metavar="FILE", help="a file with the bearer token")
        parser.add_argument("--ca-file", type=Path, metavar="FILE", help="certificates to trust, in PEM")
        parser.add_argument(
            "--speed",
            type=command_options.speed,
            default=1.0,
            metavar="N",
            help="with a recording: so many times as fast as recorded (default 1)",
        )

    def run(self, options: argparse.Namespace) -> int:
        from otel_zernel.cli.output import WrongUsage
        from otel_zernel_commands.watch.session import ViewOptions, run_watch  # with asyncio and the engine
        from otel_zernel_commands.watch.sources import SourceOptions

        if options.source and options.replay:
            raise WrongUsage("--replay names the source: leave out SOURCE")
        source: str | None = options.replay or options.source
        if source and not options.replay and source.isdecimal() and not Path(source).exists():
            try:
                options.pid, source = pid_of(source), None
            except argparse.ArgumentTypeError as error:
                raise WrongUsage(str(error)) from error
        choice = JobChoice.of(options, self.name)
        if source is not None and not choice.is_all:
            raise WrongUsage(
                "a pid and --job select jobs of this machine: leave out SOURCE, or select in the view with /"
            )
        followed = SourceOptions(options.token_file, options.ca_file, options.speed, options.interval, choice)
        return run_watch(source, ViewOptions(followed, options.once, options.json, options.no_color))
