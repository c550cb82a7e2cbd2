"""A filter for the loggers of uvicorn's protocols."""

import asyncio
import logging


def is_no_cancellation(record: logging.LogRecord) -> bool:
    """False for the traceback that uvicorn logs if the server's end cancels a request."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))
