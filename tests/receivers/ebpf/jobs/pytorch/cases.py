"""Runs the cases of a program, each in a child of a process that has imported PyTorch, which takes seconds.

Each line of input is a case. The child prints its pid, waits for a line, runs the case, prints what it has noted as
JSON, and waits for another line. `ended` follows the end of the child.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping


def serve(cases: Mapping[str, Callable[[], None]], noted: "list[str] | Counter[str]", *, warms_up: bool) -> None:
    """Runs cases until the input ends. `warms_up` runs each before its line, too: it loads code of libraries."""
    while name := sys.stdin.readline().strip():
        if child := os.fork():
            os.waitpid(child, 0)
            _say("ended")
        else:
            if warms_up:
                cases[name]()
                noted.clear()
            _say(os.getpid())
            sys.stdin.readline()
            cases[name]()
            _say(json.dumps(noted))
            sys.stdin.readline()
            os._exit(0)  # Python's own end takes a second after PyTorch


def _say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
