"""The command that shows the answer without a job: it reports on a recording that is a part of the package."""

import argparse
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from otel_zernel_commands.why.command import WhyCommand, add_outputs

if TYPE_CHECKING:
    from otel_zernel.component import Finding

_RECORDING = Path(__file__).with_name("demo.otlp.zst")
"""`python -m examples.simulated_job.recording` writes it."""
_DESCRIPTION = """Shows what `why` says of a recorded job: 8 ranks on GPUs of 2 machines, one of them slower than the
others. It needs neither root, nor a GPU, nor a job."""


class DemoCommand(WhyCommand):
    """`otel-zernel demo`: `why --replay` of that recording."""

    name = "demo"
    help = "show what why says of a recorded job: it needs neither root nor a GPU"
    description = _DESCRIPTION
    starts_program = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_outputs(parser)
        nothing = dict.fromkeys(("pid", "chosen_pid", "job", "seconds", "compare", "baseline", "program", "track"))
        parser.set_defaults(replay=_RECORDING, **nothing)

    def outlook(self, findings: "Mapping[str, Sequence[Finding]]") -> str:
        return ""

    def run(self, options: argparse.Namespace) -> int:
        status = super().run(options)
        program = Path(sys.argv[0]).name
        print(
            "\nThis was a recorded job. Your own, while it runs: "
            f"sudo {Path(sys.argv[0]).absolute()} why\nThe recorded job as a live page: "
            f"{program} live --loop --replay {_RECORDING}",
            file=sys.stderr or io.StringIO(),
        )
        return status
