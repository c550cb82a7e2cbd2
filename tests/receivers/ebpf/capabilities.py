"""Commands that run with few capabilities."""

import shutil

import pytest


def capabilities(*names: str) -> list[str]:
    """A wrapper that runs a command with these capabilities only."""
    if not shutil.which("setpriv"):
        pytest.skip("setpriv (util-linux) is not installed")
    named = ",".join(["-all", *(f"+{name}" for name in names)])
    return ["setpriv", f"--bounding-set={named}", f"--inh-caps={named}"]
