"""The process around a service: its event loop, signals, log, and the reload on SIGHUP."""

import asyncio
import gc
import logging
import os
import signal
import threading
import time
from collections.abc import Callable

from otel_zernel.config.schema import Settings
from otel_zernel.engine.service import Service, log_undelivered
from otel_zernel.errors import CannotStart, ConfigError
from otel_zernel.telemetry.logs import SamplingFilter, set_up

_logger = logging.getLogger("otel_zernel.engine.service")

ReadSettings = Callable[[], Settings]

GRACE = 5.0
"""Seconds beyond `shutdown_timeout` until a process in which something hangs is ended by force."""
_TWICE = 0.2
"""Seconds within which signals are one: `timeout`, and others who signal a process and its group, send us two."""
_SETTLED = 10.0
"""Seconds after the start of a service; whatever components import and make when they start is there by then."""


def run(read_settings: ReadSettings, *, exit_when_done: bool = False) -> int:
    """Runs the collector to its end; returns the exit status.

    Raises `ConfigError` or `CannotStart` if it cannot start.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its C core writes to stderr what the exporter logs better
    settings = read_settings()
    process = Process(read_settings, exit_when_done)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            status = runner.run(process.run(settings))
            process.end_within(1.0, status)
            return status
    finally:
        process.ended()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class Process:
    """Services one after another: a new one for each reload."""

    def __init__(self, read_settings: ReadSettings, exit_when_done: bool) -> None:
        self._read_settings = read_settings
        self._exit_when_done = exit_when_done
        self._service: Service | None = None
        self._shutdown_timeout = 0.0
        self._stop = asyncio.Event()
        self._stopping = False
        self._told_to_stop = 0.0
        self._next: Settings | None = None
        self._by_force: threading.Timer | None = None

    async def run(self, settings: Settings) -> int:
        self._watch_signals()
        previous: Settings | None = None
        while True:
            _set_up_logs(settings)
            self._service, self._shutdown_timeout = Service(settings), settings.shutdown_timeout
            _exempt_all()
            settled = asyncio.get_running_loop().call_later(_SETTLED, _exempt_newer)
            try:
                outcome = await self._service.run(self._stop, exit_when_done=self._exit_when_done)
            except CannotStart as error:
                if previous is None:
                    raise
                _logger.error("Reload failed, going back to the configuration before: %s", error)
                settings, previous = previous, None
                continue
            finally:
                settled.cancel()
            if self._stopping or self._next is None:
                self._service = None
                _logger.info("Stopped.")
                return 0 if outcome.complete or not self._exit_when_done else 1
            settings, previous, self._next = self._next, settings, None
            self._stop.clear()

    def end_within(self, seconds: float, status: int) -> None:
        """Ends the process by force if a component, or a thread of one, keeps it from ending by itself."""
        self.ended()
        self._by_force = threading.Timer(seconds, self._end_by_force, (status,))
        self._by_force.daemon = True
        self._by_force.start()

    def ended(self) -> None:
        """Takes `end_within` back."""
        if self._by_force:
            self._by_force.cancel()

    def _end_by_force(self, status: int) -> None:
        _logger.error("A component hangs; the process is ended by force.")
        if self._service:
            log_undelivered(self._service)
        os._exit(status)

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._on_stop, signal.SIGTERM)
        loop.add_signal_handler(signal.SIGINT, self._on_stop, signal.SIGINT)
        loop.add_signal_handler(signal.SIGHUP, self._on_reload)

    def _on_stop(self, received: signal.Signals) -> None:
        now = asyncio.get_running_loop().time()
        if self._stopping and now - self._told_to_stop < _TWICE:
            return
        if self._stopping and self._service:
            _logger.error("Received %s again, stopping at once.", received.name)
            log_undelivered(self._service)
            os._exit(128 + received)
        _logger.info("Received %s, shutting down. Send it again to stop at once.", received.name)
        self._stopping, self._told_to_stop = True, now
        self._stop.set()
        self.end_within(self._shutdown_timeout + GRACE, 1)

    def _on_reload(self) -> None:
        """Validates the new configuration before it touches the running one."""
        try:
            self._next = self._read_settings()
        except ConfigError as error:
            _logger.error("Reload refused, the running configuration stays:\n  %s", str(error).replace("\n", "\n  "))
            return
        _logger.info("Received SIGHUP, the new configuration is good: reloading.")
        self._stop.set()


def _exempt_all() -> None:
    """Leaves what is there, and stays, out of garbage collections: modules, classes and configuration, some 60,000
    objects, for which a full one held the event loop for 25 ms. To be called while no service runs."""
    gc.unfreeze()  # what an earlier service left
    _exempt_newer()


def _exempt_newer() -> None:
    gc.collect()  # what is frozen while it is garbage stays until the next reload
    gc.freeze()


def _set_up_logs(settings: Settings) -> None:
    logs = settings.telemetry.logs
    thinned = logs.sampling
    sampling = (
        SamplingFilter(thinned.tick, thinned.initial, thinned.thereafter, time.monotonic) if thinned.enabled else None
    )
    set_up(logs.level, logs.encoding, sampling)
    for warning in settings.warnings:
        _logger.warning("%s", warning)
