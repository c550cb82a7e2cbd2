"""The commands of the core. A command imports the collector only when it runs."""

import argparse
import json
import os
import signal
import textwrap
from typing import TYPE_CHECKING

from otel_zernel import __version__
from otel_zernel.cli.configuration import add_config, needed_sources, settings
from otel_zernel.cli.output import fail, print_result, print_warning
from otel_zernel.cli.queue import QueueCommand
from otel_zernel.command import Command, Commands
from otel_zernel.config.expand import read_text
from otel_zernel.errors import ConfigError
from otel_zernel.runtime.garbage import collection_deferred
from otel_zernel.text import quoted, suggestion

if TYPE_CHECKING:
    from otel_zernel.component import Kind
    from otel_zernel.registry import Registry


class RunCommand(Command):
    """Runs the collector until a signal stops it."""

    name = "run"
    help = "run the collector until SIGTERM or Ctrl-C stops it"

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


class ValidateCommand(Command):
    """Prints the mistakes of a configuration, and warnings about what its author probably does not want."""

    name = "validate"
    help = "check the configuration, and print its mistakes and warnings"
    description = """Checks the configuration, and prints its mistakes and warnings to stderr. It starts
nothing, but it looks at the files that the configuration names. The exit status is 1 if there is a mistake, or, with
--strict, a warning; else 0."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_config(parser)
        parser.add_argument("--strict", action="store_true", help="treat warnings as errors")

    def run(self, options: argparse.Namespace) -> int:
        warnings = settings(options, look_at_files=True).warnings
        if warnings and options.strict:
            return fail("the configuration has warnings, which --strict does not allow:", *warnings)
        for warning in warnings:
            print_warning(warning)
        return 0


class ComponentsCommand(Command):
    """Lists the installed components, or prints the sample configuration of one."""

    name = "components"
    help = "list the installed components"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--sample", metavar="TYPE", help="print the sample configuration of a type, such as csv")

    def run(self, options: argparse.Namespace) -> int:
        with collection_deferred():  # modules and classes are no garbage
            from otel_zernel.registry import KINDS, Registry

            registry = Registry.installed()
            if options.sample:
                return _sample(registry, options.sample)
            lines = [f"buildinfo:\n  command: otel-zernel\n  version: {__version__}"]
            for kind in KINDS:
                lines.append(f"{kind}:")
                lines += [_entry(registry, kind, type_, aliases) for type_, aliases in registry.aliases(kind).items()]
        print_result("\n".join(lines))
        return 0


def _entry(registry: "Registry", kind: "Kind", type_: str, aliases: list[str]) -> str:
    try:
        cls = registry.load(kind, type_)
    except ConfigError as error:
        return f"  - name: {type_}\n    broken: {json.dumps(str(error), ensure_ascii=False)}"
    lines = [
        f"  - name: {type_}",
        f"    description: {json.dumps(cls.description(), ensure_ascii=False)}",
        f"    stability: {cls.stability}",
        f"    signals: [{', '.join(sorted(cls.signals))}]",
    ]
    if aliases:
        lines.append(f"    aliases: [{', '.join(aliases)}]")
    if missing := cls.missing():
        lines.append(f"    missing: {json.dumps(missing, ensure_ascii=False)}")
    return "\n".join(lines)


def _sample(registry: "Registry", type_: str) -> int:
    from otel_zernel.registry import KINDS

    samples = [registry.sample(kind, type_) for kind in KINDS if type_ in registry.types(kind)]
    if not samples:
        types = {name for kind in KINDS for name in registry.types(kind)}
        return fail(f"unknown component type {quoted(type_)}{suggestion(type_, types, 'types')}")
    print_result("\n".join(samples))
    return 0


class DoctorCommand(Command):
    """Prints which prerequisites this machine meets."""

    name = "doctor"
    help = "check the components' prerequisites"
    description = """Checks whether this machine meets the prerequisites of the configured components, or, without
--config and --set, of all installed components. Then the last line says whether `why` can run here. It changes
nothing. A line marked !! names a missing prerequisite and what to do. The exit status is 1 if a prerequisite is
missing, else 0."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_config(parser)
        parser.add_argument(
            "--verbose", action="store_true", help="also print details, such as the end of a kernel log"
        )

    def run(self, options: argparse.Namespace) -> int:
        from otel_zernel.cli.examination import configured, examine, installed
        from otel_zernel.registry import Registry

        registry = Registry.installed()
        subjects = configured(settings(options)) if options.config or options.set else installed(registry)
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python drops a KeyboardInterrupt in a callback of libbpf
        reports = []
        for report in examine(registry, subjects):
            reports.append(report)
            if report.findings:
                print_result(report.text(verbose=options.verbose))
        if ready := [report.path for report in reports if not report.findings]:
            names = textwrap.fill(", ".join(ready), 100, initial_indent="  ", subsequent_indent="  ")
            print_result(f"Nothing is missing for {len(ready)} components\n{names}")
        if not (options.config or options.set):
            findings = {report.path: report.findings for report in reports}
            for line in filter(None, (command.outlook(findings) for command in Commands.installed().all())):
                print_result(line)
        return 0 if all(report.is_complete for report in reports) else 1


class PrintConfigCommand(Command):
    """Prints the configuration after merging and expansion."""

    name = "print-config"
    help = "print the configuration after merging and expansion"
    description = """Prints the configuration after merging and expansion, as YAML. If it is invalid,
prints the merged text before expansion, and the mistakes to stderr; the exit status is then 1."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_config(parser)
        modes = ("redacted", "unredacted")
        parser.add_argument(
            "--defaults", action="store_true", help="also print the options that are not set, and describe each one"
        )
        parser.add_argument("--mode", choices=modes, default="redacted", help="redacted, the default, hides secrets")

    def run(self, options: argparse.Namespace) -> int:
        redacted = options.mode == "redacted"
        try:
            print_result(_valid(options, redacted))
        except ConfigError:
            print_result(_merged(options, redacted))
            raise
        return 0


def _valid(options: argparse.Namespace, redacted: bool) -> str:
    from otel_zernel.config.defaults import with_defaults
    from otel_zernel.config.load import load
    from otel_zernel.config.schema import validate
    from otel_zernel.config.show import show
    from otel_zernel.registry import Registry

    loaded = load(needed_sources(options), options.set, os.environ)
    settings = validate(loaded, Registry.installed(), os.environ)
    if options.defaults:
        return with_defaults(settings, loaded.tree["service"], redacted)
    return show(loaded, settings, redacted)


def _merged(options: argparse.Namespace, redacted: bool) -> str:
    """The files and overrides that can be read, merged. Empty if there are none."""
    from otel_zernel.config.load import merge_all
    from otel_zernel.config.show import show_unchecked

    layer, _ = merge_all(needed_sources(options), options.set, os.environ)
    return show_unchecked(layer.tree, redacted) if layer.tree else ""


COMMANDS: tuple[Command, ...] = (
    RunCommand(),
    ValidateCommand(),
    ComponentsCommand(),
    DoctorCommand(),
    PrintConfigCommand(),
    QueueCommand(),
)
"""In the order of `otel-zernel --help`."""
