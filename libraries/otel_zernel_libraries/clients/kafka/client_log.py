"""The log of librdkafka, which repeats itself while brokers are down."""

import logging

from otel_zernel.component import Logger


class ClientLog:
    """Takes librdkafka's lines and writes them at debug level: the clients report their problems themselves."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger

    def log(self, level: int, text: str, *values: object) -> None:
        """Called in the thread of the client."""
        self._logger.log(min(level, logging.DEBUG), text, *values)
