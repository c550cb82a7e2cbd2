"""A path of another container is resolved in that container."""

import os
from pathlib import Path

import pytest

from otel_zernel_receivers.bcc.child.programs import real_path, real_path_below


@pytest.fixture
def container(tmp_path: Path) -> Path:
    """A root with the links of a usual Debian, and some that lead out of it."""
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "usr/lib/libc.so.6").touch()
    for name, target in {
        "lib": "usr/lib",
        "usr/bin/python3": "/etc/python",
        "etc": "/usr/../usr",
        "up": "../../../../../lib",
        "loop": "/loop",
    }.items():
        (tmp_path / name).symlink_to(target)
    return tmp_path


@pytest.mark.parametrize(
    ("path", "real"),
    [
        ("/usr/lib/libc.so.6", "/usr/lib/libc.so.6"),
        ("/lib/libc.so.6", "/usr/lib/libc.so.6"),
        ("//lib/./libc.so.6", "/usr/lib/libc.so.6"),
        ("/usr/bin/python3", "/usr/python"),
        ("/up/libc.so.6", "/usr/lib/libc.so.6"),
        ("/../../lib/missing", "/usr/lib/missing"),
    ],
)
def test_links_lead_to_files_of_the_same_root(path: str, real: str, container: Path) -> None:
    assert real_path_below(str(container), path) == f"{container}{real}"


def test_a_loop_of_links_is_an_error(container: Path) -> None:
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        real_path_below(str(container), "/loop")


def test_the_root_of_another_process_stays_in_the_path(container: Path) -> None:
    pid = os.getpid()
    assert real_path(f"/proc/{pid}/root{container}/lib/libc.so.6") == f"/proc/{pid}/root{container}/usr/lib/libc.so.6"
    assert real_path(f"{container}/lib/libc.so.6") == f"{container}/usr/lib/libc.so.6"
