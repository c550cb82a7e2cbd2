"""A collector in this process, with an exporter that keeps the live state."""

import asyncio
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, cast

from otel_zernel.component import Component
from otel_zernel.config.schema import Settings, read_settings
from otel_zernel.engine.service import Service
from otel_zernel.registry import Registry
from otel_zernel_commands.watch.reading import number, objects
from otel_zernel_commands.watch.sources.watch_source import WatchSource
from otel_zernel_libraries.serving.api.live import LiveSource, apply_delta

_LOG = "otel_zernel"
"""The logger above those of all components."""
_LOOK = 0.25
"""Seconds between two looks at the state while `once` waits."""
FIRST_STEPS = 15.0
"""Seconds in which a training process is found, and its first steps are seen."""


class InProcessSource(WatchSource):
    """Runs a service. Its pipelines end in the exporter `live`, which serves nothing."""

    def __init__(
        self,
        title: str,
        tree: Mapping[str, Any],
        *,
        ends: bool,
        processors: Mapping[str, type[Component]] = MappingProxyType({}),
    ) -> None:
        """`tree` is the configuration. `ends`: its receivers finish by themselves, as those of files do. `processors`
        are those that no package installs, by type."""
        super().__init__(title)
        self._tree = tree
        self._ends = ends
        self._processors = processors
        self._service: Service | None = None
        self._state: dict[str, Any] | None = None

    def state(self) -> dict[str, Any] | None:
        exporter = self._exporter()
        if exporter is None:
            return self._state
        changes = exporter.changes_since(self._state["seq"]) if self._state is not None else None
        if self._state is None or changes is None:
            self._state = exporter.snapshot()
            changes = []
        for delta in changes:
            apply_delta(self._state, delta)
        return self._state

    async def run(self, *, once: bool = False) -> None:
        self._service = Service(self._settings())
        stop = asyncio.Event()
        looking = asyncio.create_task(self._stop_with_steps(stop)) if once and not self._ends else None
        try:
            with _silent_log():
                await self._service.run(stop, exit_when_done=self._ends)
        finally:
            if looking is not None:
                looking.cancel()
            self.state()
            self._service = None

    def _settings(self) -> Settings:
        registry = Registry.installed()
        for type_, cls in self._processors.items():
            registry = registry.including("processors", type_, cls)
        return read_settings([f"yaml:{json.dumps(self._tree)}"], [], {}, registry)

    def _exporter(self) -> LiveSource | None:
        if self._service is None:
            return None
        try:
            return cast("LiveSource", self._service.exporter("live"))
        except LookupError:  # it has not started
            return None

    async def _stop_with_steps(self, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + FIRST_STEPS
        while loop.time() < until and not _has_step_times(self.state()):  # noqa: ASYNC110  # nothing announces it
            await asyncio.sleep(_LOOK)
        stop.set()


def live_tree(receivers: Mapping[str, Any], processors: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration of one pipeline that ends in `live`."""
    return {
        "receivers": receivers,
        "processors": processors,
        "exporters": {"live": {"api": None}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {
                "watch": {"receivers": list(receivers), "processors": list(processors), "exporters": ["live"]}
            },
        },
    }


def _has_step_times(state: dict[str, Any] | None) -> bool:
    return any(number(rank, "step", "p50") is not None for rank in objects(state, "ranks").values())


@contextmanager
def _silent_log() -> Iterator[None]:
    """The terminal belongs to the view. Problems of components are in the state."""
    root, logger = logging.getLogger(), logging.getLogger(_LOG)
    handlers, level = root.handlers[:], logger.level
    root.handlers[:] = [logging.NullHandler()]
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        logger.setLevel(level)
