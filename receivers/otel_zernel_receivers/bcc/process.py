"""The child process: started, asked, and killed. Everything blocks, up to a given time.

The kernel kills it when the thread that started it ends, whatever happens to the collector.
"""

import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from otel_zernel_receivers.bcc.child.frames import HEADER, LARGEST, frame

_HERE = Path(__file__).parent
_PIECE = 1 << 16
_LAST_WORDS = 300
"""Characters of the end of stderr in a message."""

_BOOT = f"""
import sys, types
for name, folder in (("otel_zernel_receivers", {str(_HERE.parent)!r}), ("otel_zernel_receivers.bcc", {str(_HERE)!r})):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
sys.dont_write_bytecode = True
from otel_zernel_receivers.bcc.child.main import main
main()
"""
"""Imports the child's modules without the packages around them, whose dependencies the interpreter does not have."""


class ChildFailed(Exception):
    """The child is of no use any more: it was killed."""

    def __init__(self, sentence: str, reason: str) -> None:
        """`reason` is one of the counter `zernel.bcc.restarts`."""
        super().__init__(sentence)
        self.reason = reason


def command(python: str) -> list[str]:
    """The command line of the child. Isolated: no module of the user's can shadow one that it imports."""
    return [python, "-I", "-c", _BOOT]


class ChildProcess:
    """One child. After `ChildFailed` or `close` it is gone."""

    def __init__(self, line: list[str], monotonic: Callable[[], float] = time.monotonic) -> None:
        """Starts it. Raises `OSError` if the interpreter cannot be started."""
        self._monotonic = monotonic
        self._errors = tempfile.TemporaryFile(mode="a+b")  # noqa: SIM115  # closed by `close`
        pipe = subprocess.PIPE
        try:
            self._process = subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=self._errors, bufsize=0, cwd="/")  # noqa: S603  # the configured interpreter
        except OSError:
            self._errors.close()
            raise
        self._received = bytearray()
        for stream in (self._process.stdin, self._process.stdout):
            os.set_blocking(stream.fileno(), False)  # type: ignore[union-attr]  # they are pipes

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, message: Any, seconds: float) -> Any:
        """Sends a message and returns the answer. Raises `ChildFailed`, after which the child is killed."""
        deadline = self._monotonic() + seconds
        try:
            self._send(frame(message), deadline)
            return self._answer(deadline)
        except TimeoutError:
            raise self._failed(f"the BPF programs' process did not answer within {seconds:g} s", "silent") from None
        except (BrokenPipeError, EOFError):
            end = f"{self._status()}{self._last_words()}"
            raise self._failed(f"the BPF programs' process ended with status {end}", "died") from None
        except ValueError as error:
            raise self._failed(
                f"the BPF programs' process sent a message that cannot be read: {error}", "garbage"
            ) from error

    def close(self) -> None:
        """Kills it and frees everything. Safe to call twice."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            stream.close()  # type: ignore[union-attr]  # they are pipes

    def _send(self, data: bytes, deadline: float) -> None:
        left = memoryview(data)
        fd = self._process.stdin.fileno()  # type: ignore[union-attr]
        while left:
            self._wait([], [fd], deadline)
            left = left[os.write(fd, left[:_PIECE]) :]

    def _answer(self, deadline: float) -> Any:
        self._receive(HEADER.size, deadline)
        (size,) = HEADER.unpack_from(self._received)
        if size > LARGEST:
            raise ValueError(f"it has {size} bytes")
        self._receive(HEADER.size + size, deadline)
        body = bytes(self._received[HEADER.size : HEADER.size + size])
        del self._received[: HEADER.size + size]
        answer = json.loads(body)
        if not isinstance(answer, dict):
            raise ValueError("it is no object")
        return answer

    def _receive(self, size: int, deadline: float) -> None:
        fd = self._process.stdout.fileno()  # type: ignore[union-attr]
        while len(self._received) < size:
            self._wait([fd], [], deadline)
            piece = os.read(fd, _PIECE)
            if not piece:
                raise EOFError
            self._received += piece

    def _wait(self, readable: list[int], writable: list[int], deadline: float) -> None:
        left = deadline - self._monotonic()
        if left <= 0 or not any(select.select(readable, writable, [], left)):
            raise TimeoutError

    def _status(self) -> int:
        try:
            return self._process.wait(1.0)
        except subprocess.TimeoutExpired:  # it has closed its output, and lives
            return 0

    def _last_words(self) -> str:
        self._errors.seek(0)
        text = " ".join(self._errors.read().decode("utf-8", "replace").split())
        return f": {text[-_LAST_WORDS:]}" if text else ""

    def _failed(self, sentence: str, reason: str) -> ChildFailed:
        self.close()
        return ChildFailed(sentence, reason)
