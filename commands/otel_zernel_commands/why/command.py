"""The command: its options and its output."""

import argparse
import contextlib
import os
import sys
from pathlib import Path

from otel_zernel.command import Command
from otel_zernel.errors import CannotStart
from otel_zernel.text import one_line, quoted

_SECONDS = 60.0
_LONGEST = 86_400.0  # a day

_DESCRIPTION = """Finds the training jobs of this machine, watches them, and says why they are slow: where the time of
a step goes, the verdict with its evidence and what to try, and which rank delays the others. Of a program without
PyTorch it says what its busiest threads do. It needs root and no configuration, and changes nothing in the jobs. Ctrl-C
ends the watch early and prints the report so far. The exit status is 1 if no program was found, else 0."""


class WhyCommand(Command):
    """`otel-zernel why`."""

    name = "why"
    help = "watch the training jobs of this machine for a minute, and say why they are slow"
    description = _DESCRIPTION

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        chosen = parser.add_mutually_exclusive_group()
        chosen.add_argument("pid", nargs="?", type=_pid, metavar="PID", help="only the job of this process")
        chosen.add_argument("--job", metavar="NAME", help="only the job with this name: a script, service or job id")
        parser.add_argument(
            "--for",
            dest="seconds",
            type=_duration,
            default=_SECONDS,
            metavar="DURATION",
            help="how long to watch, such as 30s or 5m (default 60s)",
        )
        parser.add_argument("--html", type=Path, metavar="FILE", help="also write the report as a page, in one file")
        parser.add_argument("--json", action="store_true", help="print the report as JSON")

    def run(self, options: argparse.Namespace) -> int:
        from otel_zernel.cli.output import print_result
        from otel_zernel_commands.why.rendering import Terminal, page, report_json, report_text
        from otel_zernel_commands.why.session import WatchOptions, watched_report

        if options.html:
            _check_writable(options.html)
        report = watched_report(WatchOptions(options.seconds, options.pid, options.job), sys.stderr)
        if options.html:
            _write(options.html, page(report))
        text = report_json(report) if options.json else report_text(report, Terminal.of(sys.stdout))
        if options.html:
            print(f"Wrote {options.html}", file=sys.stderr)
        print_result(text)
        return 0


def _pid(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a pid; use a number, or --job NAME")
    return int(text)


def _duration(text: str) -> float:
    from otel_zernel.types import parse_duration  # with pydantic, which `--help` does not need

    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(one_line(error)) from error
    if not 1 <= seconds <= _LONGEST:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not from 1s to 24h")
    return seconds


def _check_writable(path: Path) -> None:
    """Raises `CannotStart` now, and not after the watch."""
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise CannotStart(
            f"cannot write {path}: {folder} is not a folder that can be written to, or {path} is a folder"
        )


def _write(path: Path, text: str) -> None:
    """Writes the page. Under sudo it belongs to the user who has called it."""
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise CannotStart(f"cannot write {path}: {error.strerror}") from error
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() == 0 and user.isdecimal() and group.isdecimal():
        with contextlib.suppress(OSError):
            os.chown(path, int(user), int(group), follow_symlinks=False)
