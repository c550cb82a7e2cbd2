"""The names that people see for programs and jobs."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final

from otel_zernel.otlp.points import AttributeValue

PROGRAM: Final = "zernel.program"
"""The resource attribute with the script of a process."""
_UNNAMED: Final = "unknown_service"
"""The name that OpenTelemetry gives to a program without one."""


def title_of(process: Mapping[str, AttributeValue], script: str = "") -> str:
    """The name that the user gave the job of a process, or the program's script: `train.py`."""
    service = str(process.get("service.name", ""))
    if service and not service.startswith(_UNNAMED) and service != process.get("zernel.job.id"):
        return service
    names = (script, process.get(PROGRAM), process.get("process.executable.name"))
    return next((str(name) for name in names if name), f"process {process.get('process.pid', '')}".rstrip())


def script_of(command: Sequence[str]) -> str:
    """The program in a command line: `train.py` of `python -u /srv/train.py`, `pkg.train` of `python -m pkg.train`.

    Empty for an empty command line.
    """
    if not command:
        return ""
    if not PurePath(command[0]).name.startswith(("python", "pypy")):
        return PurePath(command[0]).name
    rest = iter(command[1:])
    for word in rest:
        if word == "-m":
            return next(rest, "")
        if word == "-c":
            return "python -c"
        if word in ("-W", "-X"):
            next(rest, "")
        elif not word.startswith("-"):
            return PurePath(word).name
    return PurePath(command[0]).name
