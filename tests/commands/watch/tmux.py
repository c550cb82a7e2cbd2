"""A terminal for programs: tmux, without its user's configuration."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from otel_zernel.testing import until


class Tmux:
    """One window with a shell."""

    def __init__(self, socket: Path, columns: int, rows: int) -> None:
        self._tmux = ["tmux", "-S", str(socket), "-f", "/dev/null"]
        shell = "PS1='ready> ' exec bash --norc --noprofile"
        self._call("new-session", "-d", "-s", "w", "-x", str(columns), "-y", str(rows), shell)

    def keys(self, *keys: str) -> None:
        """Presses keys, with the names of tmux."""
        self._call("send-keys", "-t", "w", *keys)

    def run(self, *command: str) -> None:
        """Types a command into the shell."""
        self._call("send-keys", "-t", "w", "-l", shlex.join(command))
        self.keys("Enter")

    def resize(self, columns: int, rows: int) -> None:
        self._call("resize-window", "-t", "w", "-x", str(columns), "-y", str(rows))

    def screen(self) -> str:
        """The text that the terminal shows."""
        return self._call("capture-pane", "-t", "w", "-p")

    def coloured(self) -> str:
        """The text with SGR codes."""
        return self._call("capture-pane", "-t", "w", "-p", "-e")

    async def shows(self, *texts: str) -> str:
        """The screen, once it has all these texts."""
        await self.until(lambda: all(text in self.screen() for text in texts))
        return self.screen()

    async def lacks(self, text: str) -> str:
        """The screen, once it does not have the text."""
        await self.until(lambda: text not in self.screen())
        return self.screen()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits. If it is in vain, the error has the screen."""
        try:
            await until(condition)
        except TimeoutError as error:
            raise AssertionError(f"the screen is:\n{self.screen()}") from error

    def close(self) -> None:
        self._call("kill-server")

    def _call(self, *words: str) -> str:
        environ = {**os.environ, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
        environ.pop("TMUX", None)
        return subprocess.run(
            [*self._tmux, *words], check=True, capture_output=True, text=True, env=environ, timeout=60
        ).stdout


@contextmanager
def terminal(folder: Path, columns: int = 100, rows: int = 24) -> Iterator[Tmux]:
    """A terminal of this size. Skips the test without tmux."""
    if shutil.which("tmux") is None:
        missing = "tmux is not installed: make peers"
        (pytest.fail if os.environ.get("REQUIRE_PEERS") == "1" else pytest.skip)(missing)
    found = Tmux(folder / "tmux", columns, rows)
    try:
        yield found
    finally:
        found.close()
