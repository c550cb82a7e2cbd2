"""Runs tests on both event loops, and checks that the server logged no problem."""

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator, Mapping

import pytest
import uvloop

ON_BOTH_LOOPS = [pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"]), pytest.mark.usefixtures("quiet")]
"""Marks of a file whose tests run on both event loops. Each leaves no traceback, no error and no warning in the log."""


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests without the mark run on the first one."""
    both = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    marker = item.get_closest_marker("asyncio")
    return both if marker and marker.kwargs else {"asyncio": asyncio.new_event_loop}


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    gc.collect()
    serious = [
        record
        for record in (*caplog.get_records("call"), *caplog.records)
        if record.exc_info or record.levelno >= logging.WARNING
    ]
    assert [record.getMessage() for record in serious if "misdirected" not in record.module] == []
