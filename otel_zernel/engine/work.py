"""The tasks of a graph: one for each receiver, and one for the ticks of each pipeline."""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from otel_zernel.engine.lifetime import cancel_and_wait
from otel_zernel.engine.pipelines.pipeline import Pipeline
from otel_zernel.engine.receivers import SupervisedReceiver
from otel_zernel.errors import CannotStart


class Work:
    """Starts and stops the tasks, each by itself. `on_end` is called when a receiver has ended."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._receivers: dict[str, asyncio.Task[None]] = {}
        self._ticks: list[asyncio.Task[None]] = []

    @property
    def is_finished(self) -> bool:
        """Whether every receiver has ended by itself."""
        return all(task.done() for task in self._receivers.values())

    def failed(self) -> dict[str, CannotStart]:
        """The errors of the receivers that cannot start, by id."""
        ended = {id_: task for id_, task in self._receivers.items() if task.done() and not task.cancelled()}
        return {id_: error for id_, task in ended.items() if isinstance(error := task.exception(), CannotStart)}

    def start_receivers(self, receivers: Mapping[str, SupervisedReceiver], *, persistent: bool = False) -> None:
        """Starts the receivers that have no task. One that has finished has one, and does not read its input again."""
        for id_, receiver in receivers.items():
            if id_ not in self._receivers:
                task = asyncio.create_task(receiver.run(persistent=persistent), name=receiver.context.path)
                task.add_done_callback(lambda _: self._on_end())
                self._receivers[id_] = task

    async def stop_receivers(self, ids: Iterable[str]) -> None:
        """Cancels receivers. One that does not end within a second is abandoned."""
        await cancel_and_wait([task for id_ in ids if (task := self._receivers.pop(id_, None))])

    def start_ticks(self, pipelines: Iterable[Pipeline]) -> None:
        """Calls `tick` of every processor at its interval."""
        self._ticks = [
            asyncio.create_task(pipeline.run_ticks(), name=f"service::pipelines::{pipeline.name}")
            for pipeline in pipelines
        ]

    async def stop_ticks(self) -> None:
        """Returns when no tick begins any more."""
        await cancel_and_wait(self._ticks)
        self._ticks = []

    async def stop(self) -> None:
        """Stops all tasks, the receivers first."""
        await self.stop_receivers(list(self._receivers))
        await self.stop_ticks()
