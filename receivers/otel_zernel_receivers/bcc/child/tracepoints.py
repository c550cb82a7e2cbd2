"""The tracepoints of a program. BCC makes the type of their arguments from a file of the kernel."""

import re
from pathlib import Path

from otel_zernel_receivers.bcc.child.problems import ChildProblem
from otel_zernel_receivers.bcc.child.system import TRACING

_PROBE = re.compile(r"\bTRACEPOINT_PROBE\(\s*(\w+)\s*,\s*(\w+)\s*\)")


def check_tracepoints(source: str, place: str) -> None:
    """Raises `ChildProblem` for the first whose file this process may not read: BCC would compile without its type."""
    for category, name in _PROBE.findall(source):
        if _denied(Path(category, name, "format")):
            raise ChildProblem(f"{category}:{name}", "tracepoint", place)


def _denied(path: Path) -> bool:
    """Whether the file exists where this process may not go, and nowhere else."""
    denied = False
    for folder in TRACING:
        try:
            with Path(folder, "events", path).open("rb"):
                return False
        except PermissionError:
            denied = True
        except OSError:
            continue
    return denied
