"""The name of a program comes from its command line, and never has source text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_libraries.training.programs import script_of


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python train.py --lr 1", "train.py"),
        ("/usr/bin/python3.11 -u /srv/jobs/train.py", "train.py"),
        ("python3-dbg -u train.py -c conf.yaml", "train.py"),
        ("python -m pkg.train --epochs 3", "pkg.train"),
        ("python -um pkg.train -c conf.yaml", "pkg.train"),
        ("python -Impkg.train", "pkg.train"),
        ("python -W ignore -X dev train.py", "train.py"),
        ("python -Wignore -Xdev -uW ignore -IXdev train.py", "train.py"),
        ("python -Wc train.py", "train.py"),
        ("python --check-hash-based-pycs always train.py", "train.py"),
        ("pypy3 --jit off train.py", "train.py"),
        ("python -u -- -train.py", "-train.py"),
        ("python -u - password", "python"),
        ("python -c pass", "python -c"),
        ("/opt/trainer/bin/trainer --fast -c conf", "trainer"),
        ("python-trainer --token password", "python-trainer"),
        ("python", "python"),
        ("python -u", "python"),
        ("", ""),
    ],
)
def test_the_program_is_the_script_or_the_module(command: str, script: str) -> None:
    assert script_of(command.split()) == script


def test_processes_of_multiprocessing_do_not_name_their_program() -> None:
    assert script_of(["python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)"]) == ""


def test_an_empty_value_of_an_option_is_a_word() -> None:
    assert script_of(["python", "-W", "", "train.py"]) == "train.py"


OPTIONS = (
    *(("-u",), ("-bE",), ("-OO",), ("-Wignore",), ("-Xdev",)),
    *(("-W", "ignore"), ("-W", ""), ("-uW", "c"), ("-IX", "dev")),
    ("--check-hash-based-pycs", "always"),
)
SOURCE = "login('hunter2', '/a/b')"


@given(
    st.sampled_from(["python", "/usr/bin/python3.11", "python3.13t", "python3-dbg", "pypy3", "/venv/bin/python.exe"]),
    st.lists(st.sampled_from(OPTIONS), max_size=4),
    st.text("uIBOEsSvqdix", max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_no_source_text_is_in_the_name(
    interpreter: str, options: list[tuple[str, ...]], cluster: str, attached: bool, is_title: bool
) -> None:
    """Neither of a command line, nor of a process title."""
    last = [f"-{cluster}c{SOURCE}"] if attached else [f"-{cluster}c", SOURCE]
    command = [interpreter, *(word for option in options for word in option), *last, "hunter2"]
    assert script_of([" ".join(command)] if is_title else command) == "python -c"
