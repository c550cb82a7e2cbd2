"""`otel-zernel doctor`: checks the prerequisites of components."""

import argparse
import signal
import textwrap

from otel_zernel.cli.configuration import add_config, settings
from otel_zernel.cli.output import print_result
from otel_zernel.command import Command, Commands


class DoctorCommand(Command):
    """Prints which prerequisites this machine meets."""

    name = "doctor"
    help = "check the components' prerequisites"
    description: (
        str | None
    ) = """Checks whether this machine meets the prerequisites of the configured components, or, without
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
