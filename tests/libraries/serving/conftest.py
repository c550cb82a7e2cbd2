"""Runs a test on both event loops, and checks that the server logged no problem."""

import asyncio
import gc
import logging
from collections.abc import Coroutine
from typing import Any, Protocol

import pytest
import uvloop

from otel_zernel.testing import PATIENCE


class Run(Protocol):
    """Runs a test within some seconds. Afterwards, the log has no traceback, no error and no warning."""

    def __call__(self, test: Coroutine[Any, Any, None], within: float = PATIENCE) -> None: ...


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Run:
    def start(test: Coroutine[Any, Any, None], within: float = PATIENCE) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(test, within))
        gc.collect()
        serious = [one for one in caplog.records if one.exc_info or one.levelno >= logging.WARNING]
        assert [one.getMessage() for one in serious if "misdirected" not in one.module] == []

    return start
