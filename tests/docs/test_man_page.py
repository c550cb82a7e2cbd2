"""docs/otel-zernel.1 is made from the parser of the command line, and man reads it."""

import shutil
import subprocess

import pytest

from docs.man_page import PAGE, page


def test_it_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `make docs`"


def test_man_reads_it_without_a_warning() -> None:
    if not shutil.which("man") or not shutil.which("groff"):
        pytest.skip("man and groff are not installed")
    done = subprocess.run(["man", "--warnings", "-l", PAGE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "EXIT STATUS" in done.stdout
