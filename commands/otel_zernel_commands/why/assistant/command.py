"""The command: its options."""

import argparse
from pathlib import Path

from otel_zernel.command import Command
from otel_zernel.errors import CannotStart
from otel_zernel.text import printable
from otel_zernel_libraries import command_options
from otel_zernel_libraries.extras import missing_packages

_DESCRIPTION = """Serves the report of `why` to an AI assistant by the Model Context Protocol, on standard input and
output or over HTTP on localhost. The tools are jobs, why, hung, lines, compare and metrics, the prompt is investigate.
They only read. Each one watches the training jobs of this machine for some seconds, for which it needs root; with
--replay they answer about a recording."""
_SHORTEST_TOKEN = 16


class McpCommand(Command):
    """`otel-zernel mcp`."""

    name = "mcp"
    help = "serve the report of why to an AI assistant (Model Context Protocol)"
    description = _DESCRIPTION

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--replay", type=Path, metavar="FILE", help="watch nothing: answer about a recording of the file exporter"
        )
        parser.add_argument(
            "--baseline", type=Path, metavar="FILE", help="a file of `why --json` that `compare` knows as report 0"
        )
        parser.add_argument(
            "--http",
            type=command_options.port,
            metavar="PORT",
            help="serve http://localhost:PORT/mcp in place of standard input",
        )
        parser.add_argument(
            "--token-file", type=Path, metavar="FILE", help="with --http: a file with the bearer token of its clients"
        )

    def run(self, options: argparse.Namespace) -> int:
        from otel_zernel.cli.output import WrongUsage
        from otel_zernel_commands.why.comparison import read_report
        from otel_zernel_libraries.recordings import require_recording

        if sentence := missing_packages("`otel-zernel mcp`", "mcp"):
            raise CannotStart(sentence)
        if (options.http is None) != (options.token_file is None):
            raise WrongUsage("--http and --token-file need each other: other users of this machine reach the port")
        token = _token_of(options.token_file) if options.token_file else ""
        if options.replay:
            require_recording(options.replay)
        baseline = read_report(options.baseline) if options.baseline else None

        from otel_zernel_commands.why.assistant.reports import Reports
        from otel_zernel_commands.why.assistant.server import serve_http, serve_stdio

        reports = Reports(options.replay, baseline)
        if options.http:
            serve_http(reports, options.http, token)
        else:
            serve_stdio(reports)
        return 0


def _token_of(path: Path) -> str:
    """Raises `CannotStart`."""
    try:
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotStart(f"cannot read the token file {printable(str(path))}: {error}") from error
    if len(token) < _SHORTEST_TOKEN or len(token.split()) != 1:
        raise CannotStart(
            f"the token file {printable(str(path))} needs one word of at least {_SHORTEST_TOKEN} characters: write one "
            "with `openssl rand -hex 32`"
        )
    return token
