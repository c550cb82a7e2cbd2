"""The lines of a process whose Python the receiver cannot read, by the program py-spy, if it is installed.

https://github.com/benfred/py-spy
"""

import json
import re
import shutil
import subprocess
from collections import Counter
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from otel_zernel.text import printable
from otel_zernel_libraries.training.hangs.frames import code_of
from otel_zernel_libraries.training.stacks import CodeLine

_PROGRAM: Final = "py-spy"
_PATIENCE: Final = 10.0
"""s"""
_SECONDS: Final = 3
"""In which it samples."""
_FRAME: Final = re.compile(r"(.*) \((.*):(\d+)\)")
_MOST_LINES: Final = 3


def py_spy_code(pid: int) -> tuple[str, ...]:
    """The lines of the main thread, as in `HungRank.code`; empty if py-spy is not installed, or cannot read it either.

    The process is not stopped meanwhile.
    """
    program = shutil.which(_PROGRAM)
    if not program:
        return ()
    command = [program, "dump", "--json", "--nonblocking", "--pid", str(pid)]
    with suppress(OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired):
        output = subprocess.run(command, capture_output=True, timeout=_PATIENCE, check=False).stdout  # noqa: S603
        threads: list[Any] = json.loads(output)
        main = next((thread for thread in threads if thread["os_thread_id"] == pid), None)
        frames = main["frames"] if main else ()
        return code_of([CodeLine(str(frame["filename"]), str(frame["name"]), int(frame["line"])) for frame in frames])
    return ()


def py_spy_note(pid: int) -> str:
    """The lines in which a process spends most of its time on the CPU; empty as for `py_spy_code`. Takes `_SECONDS`.

    Samples of py-spy have no position.
    """
    samples = _samples(pid)
    shares = [(line, count / samples.total()) for line, count in samples.most_common(_MOST_LINES) if line]
    lines = ", ".join(f"{share * 100:.0f} % in {printable(line)}" for line, share in shares)
    where = f"pid {pid} spends its time on the CPU, over all positions: {lines}"
    return f"By py-spy, in {_SECONDS} s, {where}. The receiver has no stacks of it." if lines else ""


def _samples(pid: int) -> Counter[str]:
    """Samples by the user's deepest line."""
    samples: Counter[str] = Counter()
    program = shutil.which(_PROGRAM)
    if not program:
        return samples
    options = ["--nonblocking", "--full-filenames", "--format", "raw", "--duration", str(_SECONDS), "--rate", "50"]
    with TemporaryDirectory() as folder, suppress(OSError, ValueError, subprocess.TimeoutExpired):
        output = Path(folder) / "stacks"
        command = [program, "record", *options, "--output", str(output), "--pid", str(pid)]
        subprocess.run(command, capture_output=True, timeout=_SECONDS + _PATIENCE, check=False)  # noqa: S603
        for stack in output.read_text(errors="replace").splitlines():
            frames, _, count = stack.rpartition(" ")
            named = map(_FRAME.fullmatch, reversed(frames.split(";")))
            code = code_of([CodeLine(frame[2], frame[1], int(frame[3])) for frame in named if frame])
            samples[code[0] if code else ""] += int(count)
    return samples
