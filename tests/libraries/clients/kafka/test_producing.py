"""The thread of a producer ends with its owner."""

import asyncio
import threading

from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context, until
from otel_zernel_libraries.clients.kafka.producing import MessageProducer


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.endswith(" producer")]


async def test_a_start_that_is_cancelled_leaves_no_thread() -> None:
    """A reload or a Ctrl-C may cancel it before the client is there."""
    context = make_context("exporters", "kafka", clock=SystemClock())
    opening = asyncio.create_task(MessageProducer({"bootstrap.servers": "127.0.0.1:1"}, context).open())
    while not threads():  # noqa: ASYNC110  # the loop must not see the client before the cancellation
        await asyncio.sleep(0)
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    assert opening.cancelled()
    await until(lambda: not threads())
