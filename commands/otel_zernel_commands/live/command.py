"""The command: its options, and the addresses of the page."""

import argparse
import os
import socket
import sys
from pathlib import Path

from otel_zernel.command import Command
from otel_zernel.errors import CannotStart
from otel_zernel_libraries import command_options
from otel_zernel_libraries.job_choice import JobChoice, add_choice
from otel_zernel_libraries.output_files import check_writable

_PORT = 9095
_INTERVAL = 0.5

_DESCRIPTION = """Serves a page that shows training as it happens: the steps of each rank, the time of each phase, step
durations, GPUs, stragglers, and the verdict. It watches the training processes and GPUs of this machine, for which it
needs root; with --replay it shows a recording of the file exporter as if it happened now. Other machines reach the
page by an SSH tunnel. Ctrl-C ends it."""


class LiveCommand(Command):
    """`otel-zernel live`."""

    name = "live"
    help = "serve a page that shows the training on this machine, or a recorded run, as it happens"
    description = _DESCRIPTION

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_choice(parser)
        parser.add_argument("--replay", type=Path, metavar="FILE", help="show a recording of the file exporter")
        parser.add_argument(
            "--speed",
            type=command_options.speed,
            metavar="N",
            help="with --replay: so many times as fast as recorded (default 1)",
        )
        parser.add_argument("--loop", action="store_true", help="with --replay: start again at the end")
        parser.add_argument(
            "--interval",
            type=command_options.duration("100ms", "1m"),
            default=_INTERVAL,
            metavar="DURATION",
            help="time between two updates of the page (default 500ms)",
        )
        parser.add_argument(
            "--html",
            type=Path,
            metavar="FILE",
            help="at the end, also write the page with what it shows then, in one file",
        )
        parser.add_argument(
            "--port",
            type=command_options.port,
            default=_PORT,
            help=f"the port of the page on localhost (default {_PORT})",
        )

    def run(self, options: argparse.Namespace) -> int:
        from otel_zernel.cli.output import WrongUsage
        from otel_zernel.engine.process import run
        from otel_zernel.registry import Registry
        from otel_zernel_commands.live.configuration import live_settings, replay_settings
        from otel_zernel_libraries.recordings import require_recording

        if options.replay is None and (options.loop or options.speed):
            raise WrongUsage("--speed and --loop need --replay FILE: a running job has its own pace")
        choice = JobChoice.of(options, self.name)
        if options.replay is not None and not choice.is_all:
            raise WrongUsage("a pid and --job select running jobs: leave them out with --replay")
        if options.html:
            check_writable(options.html)
        installed = Registry.installed()
        if options.replay is None:
            _check_rights()
            settings = live_settings(options.port, installed, choice, interval=options.interval, html=options.html)
        else:
            require_recording(options.replay)
            settings = replay_settings(
                options.replay,
                options.port,
                installed,
                interval=options.interval,
                speed=options.speed or 1.0,
                loop=options.loop,
                html=options.html,
            )
        try:
            return run(lambda: settings, on_ready=lambda: _print_addresses(options.port), ends_with_terminal=True)
        except CannotStart as error:
            if error.address_is_taken:
                raise CannotStart(
                    f"another program uses port {options.port}: choose another one with --port N"
                ) from error
            raise


def _check_rights() -> None:
    if os.geteuid() != 0:
        program = Path(sys.argv[0]).absolute()
        raise CannotStart(f"watching other processes needs root: run `sudo {program} live`, or replay a recording")


def _print_addresses(port: int) -> None:
    host = socket.gethostname()
    text = (
        f"Live page: http://localhost:{port}/\n"
        f"From another machine: ssh -N -L {port}:localhost:{port} {host}, then open http://localhost:{port}/\n"
        "Ctrl-C ends it."
    )
    print(text, file=sys.stderr, flush=True)
