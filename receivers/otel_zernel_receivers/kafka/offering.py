"""Offers the fetches of a consumer to the pipelines."""

import asyncio
import random
from collections.abc import Sequence
from typing import Final

from otel_zernel.batch import Batch
from otel_zernel.component import Emit, PacedEmit
from otel_zernel.errors import Refused, Rejected
from otel_zernel_receivers.kafka.consumption import Consumption
from otel_zernel_receivers.kafka.dead_letters import DeadLetters
from otel_zernel_receivers.kafka.fetches import Fetch, FetchedPart, batch_of_parts

_LAST_CALL: Final = 0.4
"""Seconds that a batch in the pipelines has after a cancellation, so that it need not be read again."""


class Offering:
    """Offers the fetches to the pipelines, in order, until they are taken."""

    def __init__(self, consumption: Consumption, emit: Emit, dead_letters: DeadLetters) -> None:
        self._config = consumption.config
        self._fetches = consumption.fetches
        self._metrics = consumption.metrics
        self._context = consumption.context
        self._emit: Emit = emit.paced if isinstance(emit, PacedEmit) else emit
        self._dead_letters = dead_letters
        self._is_ending = False

    async def run(self, arrived: "asyncio.Queue[Fetch]") -> None:
        """Until cancelled."""
        while not self._is_ending:
            await self._take(await arrived.get())

    async def _take(self, fetch: Fetch) -> None:
        parts = await self._offer(fetch)
        undecodable = [record for part in parts for record in part.undecodable]
        if undecodable and self._is_ending:
            return
        if undecodable:
            await self._dead_letters.take(undecodable)
        if repeated := self._fetches.take(fetch, parts):
            self._metrics.repeated(repeated)
            self._context.logger.warning(
                "%d records were taken after their partitions had gone to another member, which reads them again",
                sum(part.records for part in repeated),
            )

    async def _offer(self, fetch: Fetch) -> list[FetchedPart]:
        """The parts that the pipelines have taken."""
        backoff = self._config.error_backoff
        began, wait = self._context.clock.monotonic(), backoff.initial_interval
        parts = self._fetches.offer(fetch)
        batch = batch_of_parts(fetch.signal, parts)
        while batch.item_count:
            items = batch.item_count  # afterwards the batch belongs to the pipelines
            try:
                await self._emitted(batch)
                return parts
            except Rejected as rejected:  # the items were counted where they were rejected
                self._context.logger.warning("Downstream rejected %d items: %s", items, rejected)
                return parts
            except Refused as refused:
                elapsed = self._context.clock.monotonic() - began
                if self._gives_up(elapsed):
                    self._context.drop(items, "refused")
                    return parts
                self._fetches.refused(parts)
                spread = wait * backoff.randomization_factor
                pause = random.uniform(wait - spread, wait + spread)  # noqa: S311  # jitter, not a secret
                await self._context.clock.sleep(max(pause, refused.after or 0.0))
                wait = min(wait * backoff.multiplier, backoff.max_interval)
            batch, parts = self._offered_again(fetch, batch, parts)
        return parts

    def _gives_up(self, elapsed: float) -> bool:
        """Whether a refused batch is lost now."""
        if self._config.message_marking.after and not self._config.message_marking.on_error:
            return False
        backoff = self._config.error_backoff
        return not backoff.enabled or bool(backoff.max_elapsed_time and elapsed >= backoff.max_elapsed_time)

    def _offered_again(
        self, fetch: Fetch, batch: Batch, former: Sequence[FetchedPart]
    ) -> tuple[Batch, list[FetchedPart]]:
        """The same batch, unless partitions have left meanwhile: the pipelines count a refused batch once."""
        parts = self._fetches.offer(fetch)
        return (batch if parts == list(former) else batch_of_parts(fetch.signal, parts)), parts

    async def _emitted(self, batch: Batch) -> None:
        """Emits the batch. After a cancellation it has a moment to end, so that its offsets are committed."""
        emitting = asyncio.ensure_future(self._emit(batch))
        try:
            await asyncio.shield(emitting)
        except asyncio.CancelledError:
            await asyncio.wait({emitting}, timeout=_LAST_CALL)
            if emitting.done() and not emitting.cancelled() and emitting.exception() is None:
                self._is_ending = True
                return
            emitting.cancel()
            raise
