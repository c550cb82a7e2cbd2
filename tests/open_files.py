"""Open files for tests with a thousand connections that have both ends in one process."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def open_files(count: int) -> Iterator[None]:
    """Lets this process open so many files. Skips the test if its user may not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        pytest.skip(f"this user may open {hard} files, and the test needs {count}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
