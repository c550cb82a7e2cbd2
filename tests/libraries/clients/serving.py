"""A real HTTP server for the ASGI applications that stand for engines."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from otel_zernel.testing import until


@asynccontextmanager
async def served(app: Any, **settings: Any) -> AsyncIterator[int]:
    """Serves the application on a free port. Open streams are cut at the end."""
    config = uvicorn.Config(
        app,
        port=0,
        log_level="critical",
        lifespan="off",
        timeout_graceful_shutdown=0,
        timeout_keep_alive=600,
        **settings,
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve())  # `serve` would take the signals of the tests
    await until(lambda: server.started or task.done())
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task
