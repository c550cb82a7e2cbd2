"""A test that leaves a process fails itself, so no later test takes the blame."""

import os
import subprocess
import sys
from pathlib import Path

import psutil

ROOT = Path(__file__).parent.parent
LEAKS = """
import subprocess

kept = []

def test_a_child():
    kept.append(subprocess.Popen(["sleep", "100"]))

def test_a_child_with_an_environment_of_its_own():
    kept.append(subprocess.Popen(["sleep", "100"], env={}))

def test_a_child_that_nobody_waits_for():
    kept.append(subprocess.Popen(["sleep", "0"]))

def test_an_orphan():
    subprocess.run(["sh", "-c", "sleep 100 & echo $! > pid"])

def test_nothing():
    pass
"""
ENDINGS = """
import subprocess
import pytest
from tests.left_processes import SERVERS

@pytest.fixture(scope="module")
def server():
    servers = [subprocess.Popen(["sleep", "100"])]
    yield servers
    servers[0].kill()
    servers[0].wait()

@pytest.fixture
def processes():
    processes = []
    yield processes
    processes[0].kill()
    processes[0].wait()

def test_waiting():
    subprocess.run(["sleep", "0"])

def test_a_process_that_a_fixture_ends(processes):
    processes.append(subprocess.Popen(["sleep", "100"]))

def test_a_restarted_server_of_a_wider_fixture(server):
    server[0].kill()
    server[0].wait()
    server[0] = subprocess.Popen(["sh", "-c", "sleep 1 & wait; exec sleep 100"])
    SERVERS.add(server[0].pid)

def test_nothing(server):
    assert server[0].poll() is None
"""


def outcome(folder: Path, tests: str) -> str:
    """The output of pytest for these tests."""
    (folder / "test_it.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-p", "tests.left_processes", "-p", "no:cacheprovider", "-c", os.devnull]
    own = {"PATIENCE_WITH_LEFT_PROCESSES": "0.2", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"}
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **own}
    done = subprocess.run(
        [*command, "--rootdir", ".", "test_it.py"], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    return done.stdout


def test_a_test_that_leaves_a_process_fails_and_the_next_one_passes(tmp_path: Path) -> None:
    text = outcome(tmp_path, LEAKS)
    for test in ("a_child", "a_child_with_an_environment_of_its_own", "a_child_that_nobody_waits_for", "an_orphan"):
        assert f"ERROR test_it.py::test_{test} - Failed: the test left processes" in text
    assert "5 passed, 4 errors" in text
    orphan = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(orphan) or psutil.Process(orphan).status() == psutil.STATUS_ZOMBIE


def test_a_test_whose_processes_end_with_it_or_belong_to_wider_fixtures_passes(tmp_path: Path) -> None:
    text = outcome(tmp_path, ENDINGS)
    assert "4 passed" in text
    assert "error" not in text
