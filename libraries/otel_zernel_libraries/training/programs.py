"""The names that people see for programs and jobs."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.training import semconv

_UNNAMED: Final = "unknown_service"
"""The name that OpenTelemetry gives to a program without one."""
_INTERPRETER: Final = re.compile(r"(?:python|pypy)w?(?:[\d.]+[a-z]{0,2}(?:-[a-z]+\d*)?)?(?:\.exe)?")
"""`python3`, `python3.13t`, `python3-dbg`, `python3.11-intel64`, `pypy3`."""
_LONG_WITH_VALUE: Final = ("--check-hash-based-pycs", "--jit")
"""The long options of CPython and PyPy with a value: the next word."""
_SHORT_WITH_VALUE: Final = re.compile(r"-(?!-)[^cmWX]*([cmWX])(.*)", re.DOTALL)
"""A short option with a value, behind others in the same word: `-uc`. The value is its rest, or the next word."""
_MULTIPROCESSING: Final = "from multiprocessing."
"""The source text of Python's own processes: `from multiprocessing.spawn import spawn_main; ...`."""


def title_of(process: Mapping[str, AttributeValue], script: str = "") -> str:
    """The name that the user gave the job of a process, or the program's script: `train.py`."""
    service = str(process.get("service.name", ""))
    if service and not service.startswith(_UNNAMED) and service != process.get(semconv.JOB_ID):
        return service
    names = (script, process.get(semconv.PROGRAM), process.get("process.executable.name"))
    return next((str(name) for name in names if name), f"process {process.get('process.pid', '')}".rstrip())


def script_of(command: Sequence[str]) -> str:
    """The program in a command line: `train.py` of `python -u /srv/train.py`, `pkg.train` of `python -m pkg.train`.

    Empty for an empty command line, and for that of a process that multiprocessing has started: it does not name the
    program. The source text after `-c` never becomes part of the name: it may have secrets.
    """
    if len(command) == 1 and _is_python(command[0].partition(" ")[0]):
        command = command[0].split(" ")  # a process title, such as one by setproctitle
    if not command:
        return ""
    interpreter = PurePath(command[0]).name
    if not _is_python(interpreter):
        return interpreter
    rest = iter(command[1:])
    for word in rest:
        if word == "-":
            break
        if word == "--":
            return PurePath(next(rest, interpreter)).name
        if word in _LONG_WITH_VALUE:
            next(rest, "")
        elif not word.startswith("-"):
            return PurePath(word).name
        elif option := _SHORT_WITH_VALUE.match(word):
            letter, attached = option.groups()
            value = attached or next(rest, "")
            if letter == "c":
                return "" if value.startswith(_MULTIPROCESSING) else "python -c"
            if letter == "m":
                return value
    return interpreter


def _is_python(path: str) -> bool:
    return _INTERPRETER.fullmatch(PurePath(path).name) is not None
