"""Commands, run within the process of the tests: a program of its own would import the collector for half a second."""

import io
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from otel_zernel.cli import main
from otel_zernel.config.load import _standard_input


def command(*arguments: str, text: str = "", folder: Path = Path()) -> subprocess.CompletedProcess[str]:
    """What `otel-zernel` prints in the folder for these arguments and standard input."""
    _standard_input.cache_clear()
    stdin, stdout, stderr = io.TextIOWrapper(io.BytesIO(text.encode())), io.StringIO(), io.StringIO()
    with patch.object(sys, "stdin", stdin), redirect_stdout(stdout), redirect_stderr(stderr), chdir(folder):
        status = main(arguments)
    return subprocess.CompletedProcess(arguments, status, stdout.getvalue(), stderr.getvalue())
