"""The findings of `otel-zernel doctor`: whether BCC works on this machine. No program of the user's is loaded."""

import os
from collections.abc import Iterator
from typing import Any

from otel_zernel.component import Finding
from otel_zernel_receivers.bcc.config import BccConfig
from otel_zernel_receivers.bcc.process import ChildFailed, ChildProcess, command
from otel_zernel_receivers.bcc.sentences import problem_sentence

_PYTHON = "/usr/bin/python3"
_SECONDS = 60.0


def examine(config: BccConfig | None = None) -> Iterator[Finding]:
    """One finding: the first thing that BCC lacks, or that it works. Without a configuration, nobody needs it."""
    bad = False if config else None
    python = config.python if config else _PYTHON
    try:
        child = ChildProcess(command(python))
    except OSError as error:
        yield Finding("BCC", f"cannot run {python}: {error.strerror}", ok=bad)
        return
    headers = config.kernel_headers if config else None
    request: dict[str, Any] = {"parent": os.getpid(), "kernel_headers": headers, "programs": []}
    try:
        answer = child.ask(request, _SECONDS)
    except ChildFailed as failed:
        yield Finding("BCC", str(failed), ok=bad)
        return
    child.close()
    problems = answer.get("problems", ())
    yield from (Finding("BCC", problem_sentence(problem, python), ok=bad) for problem in problems)
    if not problems:
        yield Finding("BCC", f"{python} has BCC and kernel headers", ok=True)
