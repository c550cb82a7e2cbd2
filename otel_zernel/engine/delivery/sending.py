"""Sending one batch to an exporter: attempts with a timeout, repeated until the batch is settled.

An outage, a time in which an exporter delivers nothing, is in its health, and in the log at its beginning and end.
"""

import asyncio
import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial

from otel_zernel.batch import Batch, ItemCount, Signal
from otel_zernel.batch.mending import mended
from otel_zernel.batch.signals import MESSAGE_TYPES
from otel_zernel.component import Context, Exporter
from otel_zernel.delivery_config import RemoteExporterConfig, RetryConfig
from otel_zernel.engine.lifetime import was_cancelled
from otel_zernel.errors import Correctable, DecodeError, Permanent, Retryable, Unwanted
from otel_zernel.health import Outage
from otel_zernel.repeated import RepeatedByKey, more
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel.text import shown_url, spoken_duration

LONGEST_PAUSE = 5.0
"""Seconds without a settled batch after which a busy exporter counts as stuck."""


class Progress:
    """The outcomes of an exporter's attempts."""

    def __init__(self, consumers: int, now: Callable[[], float]) -> None:
        """`now` is a monotonic clock in seconds."""
        self.on_failure: Callable[[], None] = lambda: None
        """Called after each failed attempt."""
        self._consumers = consumers
        self._now = now
        self._failures = 0
        """Failed attempts since the last settled batch."""
        self._busy = 0
        """Batches that are being sent."""
        self._since = 0.0
        """When the last batch was settled, or when the exporter became busy after that."""
        self._draining = False
        self._rounds = 0
        """Failed attempts since `drain`, with no batch settled meanwhile."""

    @property
    def is_stuck(self) -> bool:
        """Whether it fails for all of its consumers, or has settled no batch for `LONGEST_PAUSE`."""
        hangs = self._busy > 0 and self._now() - self._since > LONGEST_PAUSE
        return hangs or self._failures >= self._consumers

    @property
    def is_hopeless(self) -> bool:
        """Whether every consumer has failed once more since `drain`, and no batch was settled meanwhile."""
        return self._draining and self._rounds >= max(self._busy, 1)

    def drain(self) -> None:
        """The collector stops: from here on, `is_hopeless` counts."""
        self._draining = True
        self._rounds = 0

    def begun(self) -> None:
        """A batch is being sent."""
        if not self._busy:
            self._since = self._now()
        self._busy += 1

    def failed(self) -> None:
        """An attempt failed and will be repeated."""
        self._failures += 1
        self._rounds += 1
        self.on_failure()

    def settled(self) -> None:
        """A batch is delivered, or rejected for good: the exporter answers."""
        self._failures, self._rounds, self._since = 0, 0, self._now()

    def ended(self) -> None:
        """A batch is no longer being sent."""
        self._busy -= 1


_SHORTEST = 1.0
"""Seconds. The end of a shorter outage is not logged, since one rejected batch is none."""


class OutageWatch:
    """Follows the attempts of one exporter."""

    def __init__(self, context: Context, waiting: Callable[[], ItemCount], longest: float = math.inf) -> None:
        """`waiting` counts the items that the exporter still has to deliver. A batch is kept for `longest` s."""
        self._context = context
        self._kept = "until you correct this" if math.isinf(longest) else f"for at most {spoken_duration(longest)}"
        self._waiting = waiting
        self._failures = 0
        """Failed attempts since the last delivered batch."""
        self._repeated = RepeatedByKey(context.clock.monotonic)
        """By the reason, so that another reason is logged at once."""

    @property
    def outage(self) -> Outage | None:
        """The present outage."""
        return self._context.health.outages.get(self._context.path)

    def failed(self, error: Exception, wait: float) -> None:
        """An attempt failed; the next one is in `wait` s."""
        if not isinstance(error, Correctable):
            self._failed(str(error))
            if due := self._repeated.add(str(error)):
                self._context.logger.warning("Export failed; retrying in %.1f s: %s%s", wait, error, more(due))
            return
        self._failed(f"{error}; the data are kept {self._kept}")
        if due := self._repeated.add((Correctable, error.code)):
            self._context.logger.error(
                "The server does not take the data, which are kept %s: %s%s", self._kept, error, more(due)
            )

    def given_up(self, error: Exception) -> None:
        """An attempt failed, and its batch is not sent again."""
        self._failed(str(error))

    def delivered(self) -> None:
        """A batch is delivered."""
        if not self._failures:
            return
        self._failures = 0
        outage = self._context.health.outages.pop(self._context.path, None)
        self._repeated = RepeatedByKey(self._context.clock.monotonic)
        lasted = self._context.clock.monotonic() - outage.since if outage else 0.0
        if lasted >= _SHORTEST:
            waiting, length = self._waiting(), spoken_duration(lasted)
            self._context.logger.info(
                "The exporter works again after %s; %s %s waiting.", length, waiting, waiting.verb
            )

    def _failed(self, reason: str) -> None:
        self._failures += 1
        now = self._context.clock.monotonic()
        if outage := self.outage:
            outage.last, outage.reason = now, reason
        else:
            self._context.health.outages[self._context.path] = Outage(now, now, reason, self._waiting)


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


MOST_REFUSALS = 16
"""Refusals of a batch by a server that takes others of its signal in between. After the last one, it is at fault."""
LAST_ATTEMPT = 1.0
"""Seconds before the deadline of a stop at which a batch is tried for the last time."""


class Interrupted(Exception):
    """The batch is not sent now. A reload replaces the exporter, or a stop leaves no time for another attempt."""


class Divided(Exception):
    """The server refused a batch of several parts. Each is to be sent alone, since one of them may be at fault."""


OnFailure = Callable[[Retryable], Awaitable[None]]
"""Gets the error of an attempt that is followed by another."""


async def wait_on(error: Retryable) -> None:
    """Nothing else waits for the batch."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A batch that was not delivered."""

    error: Exception
    rejected: bool = False
    """Whether the exporter would reject the batch again."""
    expired: bool = False
    """Whether it became older than `max_age`."""

    @property
    def may_be_in_part(self) -> bool:
        """Whether the exporter may accept some entries of the rejected batch."""
        return self.rejected and not isinstance(self.error, Unwanted)


class Sender:
    """One exporter with its retries."""

    def __init__(self, exporter: Exporter, config: RemoteExporterConfig, waiting: Callable[[], ItemCount]) -> None:
        """`waiting` counts the items that the exporter still has to deliver."""
        self._longest = longest_retry(config)
        self.outages = OutageWatch(exporter.context, waiting, self._longest)
        self.is_out_of_time = False
        """Whether the stop of the collector leaves no time for another attempt. Nothing more is sent then."""
        self._deadline = float("inf")
        self._hurried = asyncio.Event()
        self._exporter = exporter
        self._retry = config.retry_on_failure
        self._timeout = config.timeout or None
        self._logger = exporter.context.logger
        self._clock = exporter.context.clock
        self._draining = asyncio.Event()
        self._settling = False
        self._attempts: set[asyncio.Timeout] = set()
        """The running calls of `export`."""
        self._attempt_ended = asyncio.Event()
        self.delivered: Counter[Signal] = Counter()
        """Batches that the server has taken, by signal: the endpoint or the rights of one signal may be wrong."""
        consumers = config.sending_queue.num_consumers if config.sending_queue.enabled else 1
        self.progress = Progress(consumers, self._clock.monotonic)

    def drain(self) -> None:
        """Ends the running waits early, for one more attempt before the shutdown timeout."""
        self._draining.set()
        self.progress.drain()

    def hurry(self, deadline: float) -> None:
        """Plans no attempt after the monotonic time `deadline`, at which the collector ends."""
        self._deadline = deadline
        self._hurried.set()

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

    async def send(
        self,
        batch: Batch,
        expires_ns: float = float("inf"),
        *,
        divisible: bool = False,
        on_failure: OnFailure = wait_on,
    ) -> Failure | None:
        """Returns None when the batch is delivered. `expires_ns` is the wall-clock time after which it is given up.

        Raises `Interrupted` if it is not delivered when a reload replaces the exporter, or before a stop. Raises
        `Divided` if it is `divisible` and refused.
        """
        self.progress.begun()
        try:
            failure = await self._send(batch, expires_ns, divisible, on_failure)
        finally:
            self.progress.ended()
        if failure is None or failure.rejected:
            self.progress.settled()
        return failure

    async def try_once(self, batch: Batch) -> Permanent | Retryable | None:
        """The error of one attempt; None if the batch is delivered. Raises `Interrupted` as `send` does."""
        error = await self._outcome(batch)
        if error is None:
            self._count_delivered(batch)
            self.progress.settled()
        elif isinstance(error, Retryable):
            self._raise_if_settling()
        return error

    def _count_delivered(self, batch: Batch) -> None:
        self.delivered.update(batch.signals)
        self.outages.delivered()

    async def _send(
        self,
        batch: Batch,
        expires_ns: float,
        divisible: bool,
        on_failure: OnFailure,
    ) -> Failure | None:
        give_up_at = self._clock.monotonic() + self._longest
        refusals, taken, examined = 0, self._like(batch), False
        for delay in backoff(self._retry):
            error = await self._outcome(batch)
            if isinstance(error, Unwanted):
                return Failure(error, rejected=True)
            if isinstance(error, Permanent | Correctable) and not examined:
                examined = True
                if sound := await run_in_thread(partial(mended_batch, batch)):
                    batch = sound
                    error = await self._outcome(batch)
            if error is None:
                self._count_delivered(batch)
                return None
            if isinstance(error, Permanent):
                self.outages.given_up(error)
                return Failure(error, rejected=True)
            self._raise_if_settling()
            if isinstance(error, Correctable) and self._like(batch) > taken:
                refusals, taken = refusals + 1, self._like(batch)
                if refusals >= MOST_REFUSALS:
                    self.outages.given_up(error)
                    return Failure(error, rejected=True)
            self.progress.failed()
            if divisible and isinstance(error, Correctable):
                self.outages.given_up(error)
                raise Divided
            wait = self._wait(delay, min(error.after or 0.0, LONGEST_DELAY))
            if failure := self._failure(error, wait, give_up_at, expires_ns):
                return failure
            await on_failure(error)
            await self._pause(wait)
            self._raise_if_settling()
        raise AssertionError("backoff never ends")

    def _like(self, batch: Batch) -> int:
        """The batches of the same signals that the server has taken."""
        return sum(self.delivered[signal] for signal in batch.signals)

    def _wait(self, delay: float, after: float) -> float:
        """Seconds until the next attempt. The last one is `LAST_ATTEMPT` s before the deadline of a stop."""
        return max(after, min(delay, max(0.0, self._left)))

    @property
    def _left(self) -> float:
        """Seconds until the last attempt before the deadline of a stop."""
        return self._deadline - self._clock.monotonic() - LAST_ATTEMPT

    def _failure(self, error: Retryable, wait: float, give_up_at: float, expires_ns: float) -> Failure | None:
        """The failure if there is no other attempt. Raises `Interrupted` if a stop leaves no time for it."""
        next_attempt = self._clock.monotonic() + wait
        if not self._retry.enabled or next_attempt > give_up_at:
            self.outages.given_up(error)
            return Failure(error)
        if self._clock.time_ns() + wait * 1e9 > expires_ns:
            self.outages.given_up(error)
            return Failure(error, expired=True)
        if self._left <= 0 or next_attempt > self._deadline:
            self.outages.given_up(error)
            self.is_out_of_time = True
            raise Interrupted
        self.outages.failed(error, wait)
        return None

    def _raise_if_settling(self) -> None:
        if self._settling:
            raise Interrupted

    async def _pause(self, seconds: float) -> None:
        """Sleeps. The start of draining, and the deadline of a stop, end the sleep early."""
        waking = [event for event in (self._draining, self._hurried) if not event.is_set()]
        waits = [self._clock.sleep(seconds), *(event.wait() for event in waking)]
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def _outcome(self, batch: Batch) -> Permanent | Retryable | None:
        """The error of an attempt; None if the batch is delivered."""
        try:
            await self._attempt(batch)
        except (Permanent, Retryable) as error:
            return error
        return None

    async def _attempt(self, batch: Batch) -> None:
        try:
            async with asyncio.timeout(self._timeout) as attempt:
                self._attempts.add(attempt)
                await self._exporter.export(batch)
        except TimeoutError as error:
            url = shown_url(str(getattr(self._exporter.config, "endpoint", "")))
            limit = f"no answer{url and f' from {url}'} within the timeout of {self._timeout:g} s"
            raise Retryable(str(error) or (limit if self._timeout else "the exporter timed out")) from error
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


def mended_batch(batch: Batch) -> Batch | None:
    """The batch without the mistakes that the check on receipt does not see. None if it has none, or is damaged."""
    given = {signal: batch.bytes_of(signal) for signal in batch.signals}
    try:
        sound = {signal: mended(MESSAGE_TYPES[signal].DESCRIPTOR, encoded) for signal, encoded in given.items()}
    except DecodeError:
        return None
    if all(sound[signal] is encoded for signal, encoded in given.items()):
        return None
    return Batch.join(Batch.encoded(signal, encoded, batch.count_of(signal)) for signal, encoded in sound.items())
