"""The command: its options and its output."""

import argparse
import contextlib
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from otel_zernel.command import Command
from otel_zernel.errors import CannotStart
from otel_zernel_libraries import command_options
from otel_zernel_libraries.job_choice import JobChoice, add_choice
from otel_zernel_libraries.output_files import check_writable, write_for_caller

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from otel_zernel.component import Finding
    from otel_zernel_commands.why.findings import WhyReport
    from otel_zernel_commands.why.rendering import Terminal
    from otel_zernel_commands.why.rendering.as_json import Report
    from otel_zernel_commands.why.started_program import StartedProgram
    from otel_zernel_commands.why.watch import Slices

_SECONDS = 60.0
_HUNG = 5
"""The exit status if a job hangs."""
_TOLERANCE, _MOST_TOLERANCE = 0.05, 100.0

_DESCRIPTION = """Finds the training jobs of this machine, watches them, and says why they are slow: where the time of
a step goes, the verdict with its evidence and what to try, and which rank delays the others. Of a program without
PyTorch it says what its busiest threads do. It needs root and no configuration, and changes nothing in the jobs. Ctrl-C
ends the watch early and prints the report so far. Behind --, it starts a program and watches it from its first step;
the exit status is then that of the program. Else it is 1 if no program was found, 5 if a job hangs, and 0 otherwise."""


class WhyCommand(Command):
    """`otel-zernel why`."""

    name = "why"
    help = "watch the training jobs of this machine for a minute, and say why they are slow"
    description = _DESCRIPTION
    starts_program = True

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.epilog = "Example: otel-zernel why -- python train.py --epochs 3"
        add_choice(parser)
        parser.add_argument(
            "--for",
            dest="seconds",
            type=command_options.duration("1s", "24h"),
            metavar="DURATION",
            help="how long to watch after the first step, such as 30s or 5m (default 60s)",
        )
        parser.add_argument(
            "--replay",
            type=Path,
            metavar="FILE",
            help="watch nothing: report on a recording of the file exporter. It needs neither root nor a job",
        )
        add_outputs(parser)
        parser.add_argument(
            "--track",
            action="store_true",
            help="also write the causes and the shares of time into the job's run of Weights & Biases, MLflow or "
            "TensorBoard, if its environment names one",
        )
        parser.add_argument(
            "--compare",
            nargs=2,
            type=Path,
            metavar=("BEFORE", "AFTER"),
            help="watch nothing: compare two files of --json. The exit status is 3 if a job has become slower, 4 if it "
            "has too few steps to know",
        )
        parser.add_argument(
            "--baseline", type=Path, metavar="FILE", help="also compare the report with this file of --json"
        )
        parser.add_argument(
            "--tolerance",
            type=command_options.share(_MOST_TOLERANCE),
            default=_TOLERANCE,
            metavar="SHARE",
            help="how much slower a job may become, beside the noise (default 0.05)",
        )

    def outlook(self, findings: "Mapping[str, Sequence[Finding]]") -> str:
        """Whether the jobs of this machine can be watched."""
        from otel_zernel_commands.why.prerequisites import obstacle_of

        if "receivers::ebpf" not in findings:
            return ""
        obstacle = obstacle_of(findings["receivers::ebpf"], os.geteuid())
        return f"`why` cannot run here: {obstacle}" if obstacle else "`why` can run here."

    def run(self, options: argparse.Namespace) -> int:
        from otel_zernel.cli.output import fail, require_stdout
        from otel_zernel_commands.why.beginning import begun

        require_stdout()
        if options.compare:
            return _compare(options)
        if options.replay:
            _check_replay(options)
        baseline = _baseline(options)
        for path in filter(None, _files(options)):
            check_writable(path)
        starts_program = options.program is not None
        choice = JobChoice() if starts_program else JobChoice.of(options, self.name)
        errors = sys.stderr or io.StringIO()
        beginning = contextlib.nullcontext() if options.replay else begun(starts_program=starts_program)
        with _program_of(options) as program, beginning as installed:
            from otel_zernel_commands.why.session import WatchOptions, replayed_report, track, watched_report
            from otel_zernel_commands.why.watch import Slices

            choice = JobChoice(program.pid) if program else choice
            slices = Slices() if options.trace else None
            try:
                if installed is None:
                    report = replayed_report(options.replay, choice.name, slices, errors)
                else:
                    watched = WatchOptions(options.seconds or _SECONDS, choice, program, slices)
                    report = watched_report(watched, installed, errors)
            except CannotStart as error:
                if program is None or program.is_running or not program.status:
                    raise
                fail(str(error))
                return program.status
            _print_report(report, slices, options, errors)
            if options.track:
                track(report, options.program, errors)
            is_hung = any(job.hang and not job.hang.is_stop for job in report.jobs)
            compared = _compare_with(baseline, report, options) if baseline else 0
            if program and program.is_running:
                print("The program runs on, and is not watched any more. Ctrl-C stops it.", file=errors)
            status = program.wait() if program else 0
            return status or (_HUNG if is_hung else compared)


def _print_report(report: "WhyReport", slices: "Slices | None", options: argparse.Namespace, errors: TextIO) -> None:
    """Writes the files that the options name, and prints the report."""
    from otel_zernel.cli.output import print_result
    from otel_zernel_commands.why.rendering import folded, page, perfetto_trace, pprof_file, report_text
    from otel_zernel_commands.why.watch import MOST_SLICES

    if options.html:
        _write(options.html, page(report).encode("utf-8"))
    if slices:
        _write(options.trace, perfetto_trace(report.jobs, slices.all))
    if options.folded:
        _write(options.folded, folded(report.jobs).encode("utf-8"))
    if options.pprof:
        _write(options.pprof, pprof_file(report.jobs))
    text = _json(report) if options.json else report_text(report, _terminal(options))
    for path in filter(None, _files(options)):
        print(f"Wrote {path}", file=errors)
    if (options.folded or options.pprof) and not any(rank.code for job in report.jobs for rank in job.ranks):
        print("No stacks were read: the files of stacks are empty.", file=errors)
    if slices and slices.is_full:
        print(f"The trace has the first {MOST_SLICES:,} parts of steps only.", file=errors)
    print_result(text)


def _terminal(options: argparse.Namespace) -> "Terminal":
    from otel_zernel_commands.why.rendering import Terminal

    terminal = Terminal.of(sys.stdout)
    return terminal.plain() if options.no_color else terminal


def _json(report: "WhyReport") -> str:
    from otel_zernel_commands.why.rendering.as_json import report_json  # its models take 50 ms

    return report_json(report)


def _files(options: argparse.Namespace) -> tuple[Path | None, ...]:
    """The files that the options name."""
    return options.html, options.trace, options.folded, options.pprof


def add_outputs(parser: argparse.ArgumentParser) -> None:
    """Adds the options for the output."""
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the report as a page, in one file")
    parser.add_argument(
        "--folded", type=Path, metavar="FILE", help="also write the Python stacks in folded form, for flame graphs"
    )
    parser.add_argument(
        "--pprof", type=Path, metavar="FILE", help="also write the Python stacks as a profile for `go tool pprof`"
    )
    parser.add_argument(
        "--trace", type=Path, metavar="FILE", help="also write the steps as a trace for ui.perfetto.dev"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--no-color", action="store_true", help="no colours; NO_COLOR does the same")


def _check_replay(options: argparse.Namespace) -> None:
    from otel_zernel.cli.output import WrongUsage
    from otel_zernel_libraries.recordings import require_recording

    if options.pid or options.chosen_pid or options.seconds or options.program is not None or options.track:
        raise WrongUsage("a pid, --for, --track and a program are for running jobs: leave them out with --replay")
    require_recording(options.replay)


def _baseline(options: argparse.Namespace) -> "Report | None":
    if options.baseline is None:
        return None
    from otel_zernel_commands.why.comparison import read_report

    return read_report(options.baseline)


def _compare_with(baseline: "Report", report: "WhyReport", options: argparse.Namespace) -> int:
    from otel_zernel_commands.why.rendering.as_json import report_tree

    return _print_comparison(baseline, report_tree(report), options)


def _compare(options: argparse.Namespace) -> int:
    """Compares two files."""
    from otel_zernel_commands.why.comparison import read_report

    before, after = map(read_report, options.compare)
    return _print_comparison(before, after, options)


def _print_comparison(before: "Report", after: "Report", options: argparse.Namespace) -> int:
    """Prints the comparison, beside a report in JSON to standard error. Returns the exit status."""
    from otel_zernel.cli.output import print_result
    from otel_zernel_commands.why.comparison import compared, comparison_text, status_of

    jobs = compared(before, after)
    text = comparison_text(jobs, options.tolerance, _terminal(options))
    if options.json:
        print(text, end="", file=sys.stderr)
    else:
        print_result(text)
    return status_of(jobs, options.tolerance)


@contextlib.contextmanager
def _program_of(options: argparse.Namespace) -> "Iterator[StartedProgram | None]":
    """The program behind `--`. An error ends it. Its output must not be in the JSON."""
    if options.program is None:
        yield None
        return
    from otel_zernel.cli.output import WrongUsage
    from otel_zernel_commands.why.started_program import StartedProgram

    if options.pid or options.chosen_pid or options.job:
        raise WrongUsage("a program behind `--` is the job to watch: leave out the pid and --job")
    if not options.program:
        raise WrongUsage("`--` needs the command line of a program, such as `-- python train.py`")
    program = StartedProgram(options.program, sys.stderr if options.json else sys.stdout)
    try:
        yield program
    except BaseException:
        program.stop()
        raise


def _write(path: Path, content: bytes) -> None:
    """Writes the page or the trace."""
    try:
        write_for_caller(path, content)
    except OSError as error:
        raise CannotStart(f"cannot write {path}: {error.strerror}") from error
