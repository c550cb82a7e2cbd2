"""The life of the child: it checks, loads all programs, says what they have, and answers each request.

The first message from the collector is {"parent", "kernel_headers", "programs"}. The answer is {"ready": [tables]} or
{"problems": [...]}, after which the child ends. Each later message is {"gone": [...]}, the answer {"tables": [...]}.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from otel_zernel_receivers.bcc.child import headers, system
from otel_zernel_receivers.bcc.child.frames import Channel
from otel_zernel_receivers.bcc.child.problems import ChildProblem, reported_as
from otel_zernel_receivers.bcc.child.tables import BpfTable, answer


def main() -> None:
    """Runs until the collector has gone."""
    channel = Channel()
    request = channel.receive()
    if request is None:
        return None
    system.die_with_parent(request["parent"])
    problems: list[ChildProblem] = []
    tables = _prepared(request, problems)
    if problems:
        return channel.send({"problems": [problem.as_message() for problem in problems]})
    channel.send({"ready": [[table.program, table.name, table.key, table.value] for table in tables]})
    while (request := channel.receive()) is not None:
        channel.send(answer(tables, request["gone"]))
    os._exit(0)  # BCC's own clean-up looks for probes in files of tracefs; the kernel closes the links


def _prepared(request: Mapping[str, Any], problems: list[ChildProblem]) -> list[BpfTable]:
    """The tables of all programs. Adds what is wrong to `problems`: everything, unless the machine lacks something."""
    try:
        flags = _examined(request["kernel_headers"])
    except ChildProblem as problem:
        problems.append(problem)
        return []
    from otel_zernel_receivers.bcc.child.programs import load

    return [table for entry in request["programs"] for table in load(entry, flags, problems)]


def _examined(kernel_headers: str | None) -> list[str]:
    """Imports BCC. Returns the compiler's flags for the headers, or raises the `ChildProblem` of this machine."""
    if not system.may_trace():
        raise ChildProblem("", "capability")
    flags = headers.use(Path(kernel_headers)) if kernel_headers else []
    if flags is None or not (kernel_headers or headers.installed()):
        raise ChildProblem(kernel_headers or os.uname().release, "headers")
    system.provide_tracefs()  # before the import, which looks for it
    with reported_as("bcc", "", ImportError):
        import bcc  # noqa: F401
    return flags
