"""py-spy, if it is installed, gives the lines of a process whose Python the receiver cannot read."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from otel_zernel_commands.why.watch import py_spy_code, py_spy_note

SITE = "/venv/lib/python3.8/site-packages"
FRAMES = [
    {"name": "all_reduce", "filename": f"{SITE}/torch/distributed/distributed_c10d.py", "line": 2806, "locals": None},
    {"name": "train", "filename": "/home/me/train.py", "line": 30, "locals": None},
    {"name": "<module>", "filename": "/home/me/train.py", "line": 99, "locals": None},
]
THREADS = [
    {"pid": 7, "thread_id": 1, "os_thread_id": 8, "frames": []},
    {"pid": 7, "thread_id": 2, "os_thread_id": 7, "frames": FRAMES},
]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs, the only one."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def put(folder: Path, output: str) -> None:
    """Puts a py-spy there that says this if it is called as the real one is."""
    program = folder / "py-spy"
    asserts = 'import sys; assert sys.argv[1:] == ["dump", "--json", "--nonblocking", "--pid", "7"]'
    program.write_text(f"#!{sys.executable}\n{asserts}\nprint({output!r})\n")
    program.chmod(0o755)


def test_the_users_lines_of_the_main_thread_are_shown(installed: Path) -> None:
    put(installed, json.dumps(THREADS))
    assert py_spy_code(7) == ("train.py:30 train", "train.py:99 <module>")


@pytest.mark.parametrize("output", ["Error: denied", "{}", "[{}]", '[{"os_thread_id": 7, "frames": [{}]}]', "[]"])
def test_an_answer_without_lines_gives_none(installed: Path, output: str) -> None:
    put(installed, output)
    assert py_spy_code(7) == ()


def test_without_py_spy_there_are_no_lines(installed: Path) -> None:
    assert py_spy_code(7) == ()


def put_recorder(folder: Path, output: str) -> None:
    """Puts a py-spy there that records this."""
    program = folder / "py-spy"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom pathlib import Path\n"
        'assert sys.argv[1] == "record" and sys.argv[-2:] == ["--pid", "7"]\n'
        f'Path(sys.argv[sys.argv.index("--output") + 1]).write_text({output!r})\n'
    )
    program.chmod(0o755)


def test_the_lines_of_a_slow_process_have_their_shares(installed: Path) -> None:
    outer = "<module> (/home/me/train.py:99);train (/home/me/train.py:30)"
    stacks = (
        f"{outer};backward ({SITE}/torch/_tensor.py:1) 30",
        f"{outer} 30",
        f"{outer};load (/home/me/my data.py:5) 20",
        f"_start ({SITE}/a.py:1) 20",
    )
    put_recorder(installed, "\n".join(stacks))
    assert py_spy_note(7) == (
        "By py-spy, in 3 s, pid 7 spends its time on the CPU, over all positions: 60 % in train.py:30 train, "
        "20 % in my data.py:5 load, 20 % in a.py:1 _start. The receiver has no stacks of it."
    )


@pytest.mark.parametrize("output", ["", "\n", "train (/home/me/train.py:30) many\n", "no frame 7\n"])
def test_a_recording_without_lines_gives_none(installed: Path, output: str) -> None:
    assert py_spy_note(7) == ""
    put_recorder(installed, output)
    assert py_spy_note(7) == ""


@pytest.mark.soak
def test_the_real_py_spy_reads_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tmp_path), "py-spy"]
    if subprocess.run(install, check=False, capture_output=True).returncode:
        pytest.skip("py-spy cannot be installed")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    script = tmp_path / "waits.py"
    script.write_text("def wait():\n    print(flush=True)\n    input()\n\nwait()\n")
    with subprocess.Popen([sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout
        program.stdout.readline()
        assert py_spy_code(program.pid)[0] == "waits.py:3 wait"
        program.communicate()
    script = tmp_path / "spins.py"
    script.write_text("def spin():\n    while True:\n        sum(range(9))\n\nspin()\n")
    with subprocess.Popen([sys.executable, script]) as program:
        try:
            note = py_spy_note(program.pid)
        finally:
            program.kill()
    assert " % in spins.py:3 spin" in note
