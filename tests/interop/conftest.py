"""The foreign programs that the tests here meet."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

_INSTALL = "`make peers` installs it on Debian as root"


def miss(reason: str) -> NoReturn:
    """Skips the test for want of a peer; fails it where peers are required (REQUIRE_PEERS=1)."""
    if os.environ.get("REQUIRE_PEERS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def find_peer(program: str) -> Path:
    """Where a program is. Without it the test is skipped, or fails, and says what is missing."""
    found = shutil.which(program)
    if found is None:
        miss(f"the program {program} is missing: {_INSTALL}")
    return Path(found)


@pytest.fixture(scope="session")
def peer() -> Callable[[str], Path]:
    """`peer(program)` is where the program is."""
    return find_peer
