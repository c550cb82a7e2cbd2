"""Which of the other programs that the tests use are installed, and where."""

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

_INSTALL = "`make peers` installs it on Debian as root"


def miss(reason: str) -> NoReturn:
    """Skips the test because a program is missing; fails it with REQUIRE_PEERS=1."""
    if os.environ.get("REQUIRE_PEERS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def find_peer(program: str) -> Path:
    """The path of a program. Without the program, the test is skipped or fails, with its name."""
    which = shutil.which(program)
    if which is None:
        miss(f"the program {program} is missing: {_INSTALL}")
    return Path(which)


def peer_folder(name: str) -> Path:
    """The folder in which `make` keeps a peer outside the checkout."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "otel-zernel" / "peers" / name


def installed_peer(folder: str, name: str, target: str = "peers") -> Path:
    """The folder of a peer that `make` keeps outside the checkout. Without it, the test is skipped or fails."""
    found = peer_folder(folder)
    if not (found / ".installed").exists():
        miss(f"{name} is missing: `make {target}` installs it in {found}")
    return found
