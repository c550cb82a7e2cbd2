"""`otel-zernel queue`: shows or exports the queues that a storage extension keeps on a disk."""

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from otel_zernel.cli.output import discard_stdout, fail, print_result, require_stdout
from otel_zernel.command import Command

if TYPE_CHECKING:
    from otel_zernel.storage import JournalView

_INSPECT = """Describes each queue: batches, items, bytes, the oldest batch, and damage. It changes nothing, so a
collector may use the directory meanwhile. The exit status is 1 for a wrong directory, 2 if batches are lost, else
0."""
_EXPORT = """Writes the undelivered batches of all queues as lines of OTLP JSON, oldest first. It changes nothing, so a
collector may use the directory meanwhile. The exit status is 1 for a wrong directory or file, 2 if batches are lost or
cannot be written, else 0."""


class QueueCommand(Command):
    """Describes or exports stored queues."""

    name = "queue"
    help = "show or export what a storage extension keeps on the disk"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        inspect = actions.add_parser("inspect", help="describe each queue", description=_INSPECT)
        export = actions.add_parser("export", help="write the batches as lines of OTLP JSON", description=_EXPORT)
        for action in (inspect, export):
            action.add_argument("directory", type=Path, metavar="DIR", help="the directory of the storage extension")
            action.add_argument("--component", metavar="PATH", help="only the queue of one, such as exporters::otlp")
        export.add_argument("--output", type=Path, metavar="FILE", help="write to a new file, not to stdout")

    def run(self, options: argparse.Namespace) -> int:
        from otel_zernel.cli.stored_queues import description, journals
        from otel_zernel.registry import Registry

        views = journals(Registry.installed(), options.directory, options.component)
        if options.action == "export":
            if options.output is None:
                require_stdout()
            return _export(views, options.output)
        for view in views:
            print_result(description(view, time.time_ns()))
        return 2 if any(view.damage for view in views) else 0


def _export(views: Sequence["JournalView"], output: Path | None) -> int:
    from otel_zernel.cli.stored_queues import Export

    export = Export()
    try:
        with output.open("xb") if output else nullcontext(sys.stdout.buffer) as file:
            for view in views:
                file.writelines(line + b"\n" for line in export.lines(view))
            file.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        if output is None:
            discard_stdout()
        return fail(f"cannot write {output or 'to stdout'}: {error.strerror}")
    damage = [f"{view.component}: {damage}" for view in views for damage in view.damage]
    if problems := export.problems + damage:
        print(*problems, sep="\n", file=sys.stderr)
        return 2
    return 0
