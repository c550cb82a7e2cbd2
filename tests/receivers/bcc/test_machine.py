"""What BCC needs and this machine lacks is said in one sentence, at the start and by `doctor`."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from otel_zernel.errors import CannotStart
from otel_zernel.testing import make_context
from otel_zernel_receivers.bcc import BccReceiver
from otel_zernel_receivers.bcc.doctor import examine
from otel_zernel_receivers.bcc.process import command
from tests.receivers.bcc.programs import CALLS, config, require_bcc

PROGRAM = {"p": {"source": "x", "metrics": [CALLS]}}
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gets past the check of capabilities")


def start(line: Callable[[str], list[str]] = command, **options: object) -> str:
    """The error of a start."""
    with closing(BccReceiver(config(PROGRAM, **options), make_context(), line)) as bcc:
        with pytest.raises(CannotStart) as error:
            bcc.scrape()
        return str(error.value)


def without_capabilities(python: str) -> list[str]:
    return ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *command(python)]


@root
def test_a_process_without_capabilities_is_told_which_one_it_needs() -> None:
    assert start(without_capabilities, python=sys.executable) == (
        "receivers::test: BCC needs the capability CAP_SYS_ADMIN; run the collector as root, or grant it this "
        "capability"
    )


@root
def test_an_interpreter_without_bcc_is_named_with_the_package_to_install() -> None:
    sentence = start(python=sys.executable, kernel_headers=str(_headers()))
    assert sentence.startswith(f"receivers::test::python: {sys.executable} has no package bcc (No module named 'bcc')")
    assert "install python3-bpfcc" in sentence


def _headers() -> Path:
    return next(Path("/lib/modules").glob("*"), Path("/usr/src"))


@root
def test_missing_kernel_headers_are_named_with_the_option(tmp_path: Path) -> None:
    sentence = start(python=sys.executable, kernel_headers=str(tmp_path))
    assert sentence.startswith(f"receivers::test::kernel_headers: there are no kernel headers for {tmp_path}; install")


def test_doctor_has_one_finding() -> None:
    (finding,) = examine()
    assert finding.topic == "BCC"
    assert finding.ok is not False  # nobody needs BCC
    (missing,) = examine(config(PROGRAM, python="/no/python"))
    assert (missing.text, missing.ok) == ("cannot run /no/python: No such file or directory", False)


def test_doctor_says_that_bcc_works() -> None:
    require_bcc()
    (finding,) = examine(config(PROGRAM))
    assert (finding.text, finding.ok) == ("/usr/bin/python3 has BCC and kernel headers", True)


def test_the_child_needs_no_package_of_the_collector() -> None:
    """Its interpreter has none of them. The first check that fails is one of the machine."""
    code = "import sys; sys.modules.update(dict.fromkeys(('pydantic', 'opentelemetry', 'numpy', 'otel_zernel')))\n"

    def line(python: str) -> list[str]:
        *start, script = command(python)
        return [*start, code + script]

    assert "BCC" in start(line, kernel_headers="/") or "headers" in start(line, kernel_headers="/")


def test_the_child_runs_in_old_interpreters() -> None:
    """RHEL 9 has Python 3.9."""
    import ast

    folder = Path(sys.modules[BccReceiver.__module__].__file__ or "").parent / "child"
    files = sorted(folder.glob("*.py"))
    assert files
    for file in files:
        ast.parse(file.read_text(), feature_version=(3, 9))


def test_the_child_ends_when_its_input_does() -> None:
    done = subprocess.run(command(sys.executable), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
