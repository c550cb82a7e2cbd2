"""The child process over time: started at the first question, and again at the next one after it has failed."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from otel_zernel.component import Context
from otel_zernel.errors import CannotStart
from otel_zernel_receivers.bcc.config import BccConfig
from otel_zernel_receivers.bcc.declared import RESTARTS
from otel_zernel_receivers.bcc.process import ChildFailed, ChildProcess
from otel_zernel_receivers.bcc.programs import LoadedTables, request
from otel_zernel_receivers.bcc.sentences import listed, problem_sentence

_EARLIER = 0.9
"""The part of a scrape's timeout after which the child has failed, so that the log has this reason."""
Gone = Mapping[tuple[str, str, str], Sequence[int]]
"""Pids that have ended, by program, table and field of the key."""


class ProgramSession:
    """Reads the tables of all programs. A failed child costs one scrape."""

    def __init__(self, config: BccConfig, context: Context, line: Callable[[str], list[str]]) -> None:
        """`line` makes the command line of the child from the path of the interpreter."""
        self._config, self._context, self._line = config, context, line
        self._child: ChildProcess | None = None
        self._programs: list[dict[str, Any]] = []
        """As read at the first start: a file that changes later has no effect."""
        self._tables: LoadedTables | None = None
        self._restarts = context.meter.create_counter(*RESTARTS.counter)

    def read(self, gone: Gone) -> tuple[LoadedTables, Sequence[Mapping[str, Any]]]:
        """The series, and the rows of each table. Entries of `gone` pids are deleted before.

        Raises `CannotStart` if the first child fails before it is ready, and `ChildFailed` later.
        """
        tables = self._tables if self._child else self._start()
        doomed = [{"program": p, "table": t, "field": f, "values": [*values]} for (p, t, f), values in gone.items()]
        timeout = (self._config.timeout or self._config.collection_interval) * _EARLIER
        answer = self._ask({"gone": doomed}, timeout, "tables")
        assert tables  # noqa: S101  # a child is there, so a start has succeeded
        return tables, answer

    def close(self) -> None:
        """Ends the child. Safe to call twice."""
        if self._child:
            self._child.close()
            self._child = None

    def _start(self) -> LoadedTables:
        try:
            return self._started()
        except ChildFailed as failed:
            if self._tables:
                raise
            raise CannotStart(f"{self._context.path}: {failed}") from failed
        except OSError as error:
            raise CannotStart(f"{self._context.path}: cannot use {error.filename}: {error.strerror}") from error

    def _started(self) -> LoadedTables:
        """Starts a child, in which all tables are empty."""
        self._programs = self._programs or [request(*one) for one in self._config.programs.items()]
        names = ", ".join(self._config.programs)
        self._context.logger.info("Compiling the BPF programs, which takes some seconds for each: %s", names)
        self._child = ChildProcess(self._line(self._config.python))
        first = {"parent": os.getpid(), "kernel_headers": self._config.kernel_headers, "programs": self._programs}
        ready = self._ask(first, self._config.start_timeout, "ready")
        if not self._tables:
            tables = LoadedTables(self._config.programs, ready)
            if tables.problems:
                self.close()
                raise CannotStart(listed(self._context.path, tables.problems))
            self._tables = tables
        self._context.logger.info("Attached the BPF programs: %s", names)
        self._tables.restart(self._context.clock.time_ns())
        return self._tables

    def _ask(self, message: Any, seconds: float, key: str) -> Any:
        """This part of the child's answer. Raises `ChildFailed` or, before the first success, `CannotStart`."""
        assert self._child  # noqa: S101  # callers start it
        try:
            answer = self._child.ask(message, seconds)
            if key in answer:
                return answer[key]
            raise self._refused(answer)
        except ChildFailed as failed:
            self.close()
            if self._tables:
                self._restarts.add(1, {"reason": failed.reason})
            raise

    def _refused(self, answer: Mapping[str, Any]) -> Exception:
        """The error for an answer without the expected part."""
        problems = [problem_sentence(one, self._config.python) for one in answer.get("problems", ())]
        if not problems:
            return ChildFailed("the BPF programs' process sent a message of an unknown form", "garbage")
        text = listed(self._context.path, problems)
        if self._tables:
            return ChildFailed(text, "refused")
        self.close()
        return CannotStart(text)
