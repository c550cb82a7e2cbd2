"""Opens the durable queue of an exporter, and reports the damage that its storage has found."""

from otel_zernel.component import Context
from otel_zernel.delivery_config import SendingQueueConfig
from otel_zernel.engine.queues.durable import CACHE, DurableQueue
from otel_zernel.errors import CannotStart
from otel_zernel.storage import Damage, Storage


async def open_durable(context: Context, config: SendingQueueConfig, max_bytes: int | None) -> DurableQueue:
    """Opens the journal of an exporter in the storage extension that its queue names. Raises `CannotStart`."""
    id_ = config.storage or ""
    storage = context.extension(id_)
    if not isinstance(storage, Storage):
        raise CannotStart(f"{context.path}: extension {id_} stores no data; name a storage extension")
    journal = await storage.journal(context.path)
    for damage in journal.damage:
        _report(damage, context)
    queue = DurableQueue(config, journal, context, max_bytes or CACHE)
    try:
        await queue.restore()
    except BaseException:
        await queue.close()
        raise
    if items := queue.stored().total:
        context.logger.info("The queue on the disk has %d items of an earlier run; they are delivered first.", items)
    return queue


def _report(damage: Damage, context: Context) -> None:
    if damage.records:
        context.logger.error("The queue's storage is damaged: %s", damage)
        context.drop(damage.items, "damaged")
    else:
        context.logger.info("The queue's storage was repaired; no accepted batch is missing: %s", damage)
