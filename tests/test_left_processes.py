"""A test that leaves a process fails itself, so no later test takes the blame."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEST = """
import subprocess
import tests.left_processes
tests.left_processes.PATIENCE = 0.2
kept = []

def test_first():
    {}

def test_second():
    pass
"""


def outcome(folder: Path, body: str) -> str:
    """The output of pytest for a test with this body, and another test after it."""
    (folder / "test_it.py").write_text(TEST.format(body))
    return run(folder)


def run(folder: Path) -> str:
    """The output of pytest for the file `test_it.py`."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.left_processes", "-p", "no:cacheprovider", "-c", os.devnull]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--rootdir", ".", "test_it.py"], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    return done.stdout


@pytest.mark.parametrize(
    "body",
    ["kept.append(subprocess.Popen(['sleep', '100']))", "subprocess.run(['sh', '-c', 'sleep 100 & exit 0'])"],
    ids=["child", "orphan"],
)
def test_a_test_that_leaves_a_process_fails_and_the_next_one_passes(body: str, tmp_path: Path) -> None:
    text = outcome(tmp_path, body)
    assert "ERROR test_it.py::test_first - Failed: the test left processes" in text
    assert "2 passed, 1 error" in text


def test_the_process_of_a_wider_fixture_may_outlive_the_test_that_asks_for_it(tmp_path: Path) -> None:
    server = """
import pytest
@pytest.fixture(scope="module")
def server():
    with subprocess.Popen(["sleep", "100"]) as process:
        yield
        process.kill()
"""
    (tmp_path / "test_it.py").write_text(
        TEST.replace("def test_first()", "def test_first(request)")
        .replace("\ndef", f"{server}\ndef", 1)
        .format("request.getfixturevalue('server')")
    )
    text = run(tmp_path)
    assert "2 passed" in text
    assert "error" not in text


def test_a_test_that_waits_for_its_processes_passes(tmp_path: Path) -> None:
    text = outcome(tmp_path, "subprocess.run(['sleep', '0'])")
    assert "2 passed" in text
    assert "error" not in text
