"""The command line: `otel-zernel run | validate | components | doctor | print-config | queue`.

As in the OpenTelemetry Collector, an error is printed to stderr as `Error: …`, and the exit status is 1.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

from otel_zernel import __version__
from otel_zernel.command import Command, Commands
from otel_zernel.config.expand import ReadText, read_text
from otel_zernel.config.load import load
from otel_zernel.config.schema import Settings, read_settings, validate
from otel_zernel.config.show import show
from otel_zernel.config.watch import ReadFiles
from otel_zernel.errors import CannotStart, ConfigError
from otel_zernel.registry import KINDS, Registry
from otel_zernel.storage import JournalView
from otel_zernel.text import quoted, suggestion, without_secrets


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status. Without `arguments`, it uses the arguments of the process."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0].startswith(("--config", "--set")):
        words.insert(0, "run")  # as in the OpenTelemetry Collector, which has no `run` command
    installed = {command.name: command for command in Commands.installed().needed_by(words, _COMMANDS)}
    options = _parser(installed.values()).parse_args(words)
    try:
        if command := installed.get(options.command):
            return command.run(options)
        return _COMMANDS[options.command](options)
    except ConfigError as error:
        return _fail("invalid configuration:", *map(str, error.problems))
    except CannotStart as error:
        return _fail(*str(error).splitlines())
    except BrokenPipeError:  # the reader has closed the pipe, as in `otel-zernel components | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _fail(first: str, *more: str) -> int:
    print(without_secrets("\n  ".join((f"Error: {first}", *more))), file=sys.stderr)
    return 1


class _Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        self.exit(1, f"Error: {message}\nRun '{self.prog} --help' for usage.\n")


def _parser(installed: Iterable[Command]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="otel-zernel",
        description="An OpenTelemetry collector for machine-learning training.",
        epilog="Example: otel-zernel run --config config.yaml",
    )
    parser.add_argument("-v", "--version", action="version", version=f"otel-zernel version {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run the collector until SIGTERM or Ctrl-C stops it")
    _add_config(run)
    run.add_argument("--watch", action="store_true", help="reload when a configuration file changes, as SIGHUP does")
    run.add_argument("--exit-when-done", action="store_true", help="exit when every receiver has read all its input")

    _add_config(commands.add_parser("validate", help="check the configuration, and print only its mistakes"))

    components = commands.add_parser("components", help="list the installed components")
    components.add_argument("--sample", metavar="TYPE", help="print the sample configuration of a type, such as csv")

    doctor = commands.add_parser("doctor", help="check the components' prerequisites", description=_DOCTOR)
    _add_config(doctor, required=False)
    doctor.add_argument("--verbose", action="store_true", help="also print details, such as the end of a kernel log")

    print_config = commands.add_parser("print-config", help="print the configuration after merging and expansion")
    _add_config(print_config)
    modes = ("redacted", "unredacted")
    print_config.add_argument("--mode", choices=modes, default="redacted", help="redacted, the default, hides secrets")
    _add_queue(commands.add_parser("queue", help="show or export what a storage extension keeps on the disk"))
    for command in installed:
        command.add_arguments(commands.add_parser(command.name, help=command.help, description=command.description))
    return parser


def _add_queue(queue: argparse.ArgumentParser) -> None:
    actions = queue.add_subparsers(dest="action", required=True, metavar="ACTION")
    inspect = actions.add_parser("inspect", help="describe each queue", description=_INSPECT)
    export = actions.add_parser("export", help="write the batches as lines of OTLP JSON", description=_EXPORT)
    for action in (inspect, export):
        action.add_argument("directory", type=Path, metavar="DIR", help="the directory of the storage extension")
        action.add_argument("--component", metavar="PATH", help="only the queue of one, such as exporters::otlp")
    export.add_argument("--output", type=Path, metavar="FILE", help="write to a new file, not to stdout")


_INSPECT = """Describes each queue: batches, items, bytes, the oldest batch, and damage. It changes nothing, so a
collector may use the directory meanwhile. The exit status is 1 for a wrong directory, 2 if batches are lost, else
0."""
_EXPORT = """Writes the undelivered batches of all queues as lines of OTLP JSON, oldest first. It changes nothing, so a
collector may use the directory meanwhile. The exit status is 1 for a wrong directory or file, 2 if batches are lost or
cannot be written, else 0."""
_DOCTOR = """Checks whether this machine meets the prerequisites of the configured components, or, without --config and
--set, of all installed components. It changes nothing. A line marked !! names a missing prerequisite and what to do.
The exit status is 1 if a prerequisite is missing, else 0."""


def _add_config(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        required=required,
        metavar="URI",
        help="a path, file:PATH, env:NAME or yaml:TEXT; may be repeated: all are merged, and later values win",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override one value, such as exporters.file.path=out.jsonl; may be repeated",
    )


def _settings(options: argparse.Namespace, read: ReadText = read_text) -> Settings:
    return read_settings(options.config, options.set, os.environ, Registry.installed(), read)


def _run(options: argparse.Namespace) -> int:
    from otel_zernel.engine.process import run

    files = ReadFiles()
    watched = files if options.watch else None
    return run(lambda: _settings(options, files), exit_when_done=options.exit_when_done, watched=watched)


def _validate(options: argparse.Namespace) -> int:
    _settings(options)
    return 0


def _components(options: argparse.Namespace) -> int:
    registry = Registry.installed()
    if options.sample:
        return _sample(registry, options.sample)
    print(f"buildinfo:\n  command: otel-zernel\n  version: {__version__}")
    for kind in KINDS:
        print(f"{kind}:")
        for type_, aliases in registry.aliases(kind).items():
            print(_entry(registry, kind, type_, aliases))
    return 0


def _entry(registry: Registry, kind: str, type_: str, aliases: list[str]) -> str:
    try:
        cls = registry.load(kind, type_)  # type: ignore[arg-type]  # an item of KINDS
    except ConfigError as error:
        return f"  - name: {type_}\n    broken: {error}"
    lines = [
        f"  - name: {type_}",
        f"    stability: {cls.stability}",
        f"    signals: [{', '.join(sorted(cls.signals))}]",
    ]
    if aliases:
        lines.append(f"    aliases: [{', '.join(aliases)}]")
    if missing := cls.missing():
        lines.append(f"    missing: {missing}")
    return "\n".join(lines)


def _sample(registry: Registry, type_: str) -> int:
    samples = [registry.sample(kind, type_) for kind in KINDS if type_ in registry.types(kind)]
    if not samples:
        types = {name for kind in KINDS for name in registry.types(kind)}
        return _fail(f"unknown component type {quoted(type_)}{suggestion(type_, types, 'types')}")
    print("\n".join(samples), end="")
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from otel_zernel.doctor import configured, examine, installed

    registry = Registry.installed()
    subjects = configured(_settings(options)) if options.config or options.set else installed(registry)
    complete = True
    for report in examine(registry, subjects):
        print(report.text(verbose=options.verbose), flush=True)
        complete = complete and report.is_complete
    return 0 if complete else 1


def _print_config(options: argparse.Namespace) -> int:
    loaded = load(options.config, options.set, os.environ)
    settings = validate(loaded, Registry.installed(), os.environ)
    print(show(loaded, settings, redacted=options.mode == "redacted"), end="")
    return 0


def _queue(options: argparse.Namespace) -> int:
    from otel_zernel.stored_queues import description, journals

    views = journals(Registry.installed(), options.directory, options.component)
    if options.action == "export":
        return _export(views, options.output)
    for view in views:
        print(description(view, time.time_ns()))
    return 2 if any(view.damage for view in views) else 0


def _export(views: Sequence[JournalView], output: Path | None) -> int:
    from otel_zernel.stored_queues import Export

    export = Export()
    try:
        with output.open("xb") if output else nullcontext(sys.stdout.buffer) as file:
            for view in views:
                file.writelines(line + b"\n" for line in export.lines(view))
            file.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        return _fail(f"cannot write {output or 'to stdout'}: {error.strerror}")
    damage = [f"{view.component}: {one}" for view in views for one in view.damage]
    if problems := export.problems + damage:
        print(*problems, sep="\n", file=sys.stderr)
        return 2
    return 0


_COMMANDS = {
    "run": _run,
    "validate": _validate,
    "components": _components,
    "doctor": _doctor,
    "print-config": _print_config,
    "queue": _queue,
}
