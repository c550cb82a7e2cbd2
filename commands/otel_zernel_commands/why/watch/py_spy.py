"""The lines of a process whose Python the receiver cannot read, by the program py-spy, if it is installed.

https://github.com/benfred/py-spy
"""

import json
import shutil
import subprocess
from contextlib import suppress
from typing import Any, Final

from otel_zernel_libraries.training.hangs.frames import code_of
from otel_zernel_libraries.training.stacks import CodeLine

_PROGRAM: Final = "py-spy"
_PATIENCE: Final = 10.0
"""s"""


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
