"""Sending one batch to an exporter: attempts with a timeout, repeated until the batch is settled."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass

from otel_zernel.batch import Batch
from otel_zernel.component import Exporter
from otel_zernel.delivery_config import RemoteExporterConfig, RetryConfig
from otel_zernel.engine.delivery.progress import Progress
from otel_zernel.engine.lifetime import was_cancelled
from otel_zernel.errors import Permanent, Retryable

LONGEST_DELAY = 300.0
"""The longest wait in seconds that a server can ask for. A wrong `Retry-After` must not stop an exporter for days."""


def backoff(config: RetryConfig) -> Iterator[float]:
    """Seconds to wait before each repetition: exponential, randomized, with an upper limit."""
    interval = config.initial_interval
    while True:
        spread = config.randomization_factor * interval
        yield random.uniform(interval - spread, interval + spread)  # noqa: S311  # jitter, not a secret
        interval = min(interval * config.multiplier, config.max_interval)


def longest_retry(config: RemoteExporterConfig) -> float:
    """Seconds after which a batch is given up. A durable queue has no limit unless the user sets one."""
    retry = config.retry_on_failure
    if config.sending_queue.storage and "max_elapsed_time" not in retry.model_fields_set:
        return float("inf")
    return retry.max_elapsed_time or float("inf")


class Interrupted(Exception):
    """A reload replaces the exporter: its successor sends the batch."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A batch that was not delivered."""

    error: Exception
    rejected: bool = False
    """Whether the exporter would reject the batch again."""
    expired: bool = False
    """Whether it became older than `max_age`."""


class Sender:
    """One exporter with its retries."""

    def __init__(self, exporter: Exporter, config: RemoteExporterConfig) -> None:
        self._exporter = exporter
        self._retry = config.retry_on_failure
        self._longest = longest_retry(config)
        self._timeout = config.timeout or None
        self._logger = exporter.context.logger
        self._clock = exporter.context.clock
        self._draining = asyncio.Event()
        self._settling = False
        self._attempts: set[asyncio.Timeout] = set()
        """The running calls of `export`."""
        self._attempt_ended = asyncio.Event()
        consumers = config.sending_queue.num_consumers if config.sending_queue.enabled else 1
        self.progress = Progress(consumers, self._clock.monotonic)

    def drain(self) -> None:
        """Ends the running waits early, for one more attempt before the shutdown timeout."""
        self._draining.set()
        self.progress.drain()

    async def settle(self) -> None:
        """Lets the running attempts end. A batch that fails from now on raises `Interrupted`, and is not lost."""
        self._settling = True
        self._draining.set()
        while self._attempts:
            self._attempt_ended.clear()
            await self._attempt_ended.wait()

    def cut(self) -> None:
        """Ends the attempts that still run after `settle`."""
        for attempt in self._attempts if self._settling else ():
            if not attempt.expired():
                attempt.reschedule(0)

    async def send(self, batch: Batch, expires_ns: float = float("inf")) -> Failure | None:
        """Returns None when the batch is delivered. `expires_ns` is the wall-clock time after which it is given up.

        Raises `Interrupted` if it is not delivered when a reload replaces the exporter.
        """
        self.progress.begun()
        try:
            failure = await self._send(batch, expires_ns)
        finally:
            self.progress.ended()
        if failure is None or failure.rejected:
            self.progress.settled()
        return failure

    async def _send(self, batch: Batch, expires_ns: float) -> Failure | None:
        give_up_at = self._clock.monotonic() + self._longest
        for delay in backoff(self._retry):
            try:
                await self._attempt(batch)
            except Permanent as error:
                return Failure(error, rejected=True)
            except Retryable as error:
                self._raise_if_settling()
                self.progress.failed()
                wait = max(delay, min(error.after or 0.0, LONGEST_DELAY))
                if not self._retry.enabled or self._clock.monotonic() + wait > give_up_at:
                    return Failure(error)
                if self._clock.time_ns() + wait * 1e9 > expires_ns:
                    return Failure(error, expired=True)
                self._logger.warning("Export failed; retrying in %.1f s: %s", wait, error)
                await self._pause(wait)
                self._raise_if_settling()
            else:
                return None
        raise AssertionError("backoff never ends")

    def _raise_if_settling(self) -> None:
        if self._settling:
            raise Interrupted

    async def _pause(self, seconds: float) -> None:
        """Sleeps. The start of draining ends the sleep early."""
        sleeping = asyncio.ensure_future(self._clock.sleep(seconds))
        draining = asyncio.ensure_future(self._draining.wait())
        either = {sleeping} if self._draining.is_set() else {sleeping, draining}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            draining.cancel()

    async def _attempt(self, batch: Batch) -> None:
        try:
            async with asyncio.timeout(self._timeout) as attempt:
                self._attempts.add(attempt)
                await self._exporter.export(batch)
        except TimeoutError as error:
            limit = f"no answer within {self._timeout:g} s" if self._timeout else "the exporter timed out"
            raise Retryable(str(error) or limit) from error
        except (Retryable, Permanent):
            raise
        except (Exception, asyncio.CancelledError) as error:  # an exporter's bug costs this batch, not the consumer
            if was_cancelled(error):
                raise
            self._logger.exception("The exporter raised an unexpected exception; dropping the batch")
            raise Permanent(f"{type(error).__name__}: {error}") from error
        finally:
            self._attempts.discard(attempt)
            self._attempt_ended.set()
