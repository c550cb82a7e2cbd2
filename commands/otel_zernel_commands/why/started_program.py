"""A program that the command starts: held until the probes are in place, stopped by Ctrl-C, and waited for."""

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, TextIO

import psutil

from otel_zernel.errors import CannotStart
from otel_zernel.text import quoted

_HELD = 'kill -STOP $$; exec "$@"'
"""A shell that stops, and becomes the program, with the same pid, when it is continued."""
_STOPS = 5.0
"""Seconds that the shell has to stop."""
_LOOK = 0.01
"""Seconds between two looks at it."""
_REACTS = 2.0
"""Seconds in which a program ends by the signal that its terminal has sent to both."""
_ENDS = 15.0
"""Seconds that a program has to end after each further signal."""


class StartedProgram:
    """One run of a program."""

    def __init__(self, words: Sequence[str], output: TextIO, environ: Mapping[str, str] = os.environ) -> None:
        """`output` gets its standard output. Raises `CannotStart` if there is no such program."""
        if shutil.which(words[0], path=environ.get("PATH")) is None:
            raise CannotStart(
                f"cannot start {quoted(words[0])}: there is no such program in PATH; under sudo, write its whole path"
            )
        self.words = tuple(words)
        caller = _caller(environ)
        self.user = _name_of(caller.get("user", os.geteuid())) if environ.get("SUDO_UID") else ""
        """The name of the user who runs it, if this command was called by sudo; else empty."""
        self.started_ns = 0
        """When the program began (Unix time); 0 as long as it is held."""
        try:
            self._process = subprocess.Popen(  # noqa: S603  # the program that the user has asked for
                ["/bin/sh", "-c", _HELD, "sh", *words], stdout=output, **caller
            )
        except OSError as error:
            raise CannotStart(f"cannot start {quoted(words[0])}: {error.strerror}") from error

        self._shell = psutil.Process(self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def status(self) -> int:
        """Its exit status, as a shell has it: 128 and the number of the signal that ended it."""
        code = self._process.returncode or 0
        return code if code >= 0 else 128 - code

    def release(self) -> None:
        """Lets it begin."""
        deadline = time.monotonic() + _STOPS
        with suppress(psutil.Error):  # it has been killed
            while self._shell.status() != psutil.STATUS_STOPPED and time.monotonic() < deadline:
                time.sleep(_LOOK)
        self.started_ns = time.time_ns()
        self._process.send_signal(signal.SIGCONT)

    def stop(self, number: int = signal.SIGINT) -> int:
        """Ends it, and returns its exit status. A terminal sends the signal of Ctrl-C to the program itself: it gets
        the signal again only if it goes on."""
        if not self.started_ns:
            self._process.kill()
        for seconds, following in ((_REACTS, number), (_ENDS, signal.SIGTERM), (_ENDS, signal.SIGKILL)):
            try:
                self._process.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                self._process.send_signal(following)
        self._process.wait()
        return self.status

    def wait(self) -> int:
        """Waits for its end, and returns its exit status. Signals to this process end it, too."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda number, _: self._process.send_signal(number))
        try:
            self._process.wait()
        except KeyboardInterrupt:
            return self.stop()
        return self.status


def _caller(environ: Mapping[str, str]) -> dict[str, Any]:
    """The user who has called this command by sudo, as arguments of `Popen`. In a shell of root, root stays."""
    user, group = environ.get("SUDO_UID", ""), environ.get("SUDO_GID", "")
    if os.geteuid() or not (user.isdecimal() and group.isdecimal()):
        return {}
    below_sudo = takewhile(lambda process: not _is_sudo(process), psutil.Process().parents())
    if any(map(_is_shell_of_root, below_sudo)):
        return {}
    caller: dict[str, Any] = {"user": int(user), "group": int(group), "extra_groups": [int(group)]}
    with suppress(KeyError):
        known = pwd.getpwuid(int(user))
        caller["extra_groups"] = os.getgrouplist(known.pw_name, int(group))
        caller["env"] = {**environ, "HOME": known.pw_dir, "USER": known.pw_name, "LOGNAME": known.pw_name}
    return caller


_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "mksh", "tcsh", "csh", "ash", "busybox"})


def _is_sudo(process: psutil.Process) -> bool:
    try:
        return bool(process.name() == "sudo")
    except psutil.Error:
        return False


def _is_shell_of_root(process: psutil.Process) -> bool:
    """Whether root works in this shell: it runs neither a script nor the command of an option `-c`."""
    try:
        words = process.cmdline()
        of_root = process.uids().real == 0
    except psutil.Error:
        return False
    name = Path(words[0]).name.removeprefix("-") if words else ""
    return of_root and name in _SHELLS and all(word.startswith("-") and word != "-c" for word in words[1:])


def _name_of(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
