"""The process around a service: its event loop, signals, logs, and the reload on SIGHUP."""

import asyncio
import gc
import logging
import os
import signal
import threading
from collections.abc import Callable

from otel_zernel.clock import Clock, SystemClock
from otel_zernel.config.schema import Settings
from otel_zernel.engine.service import Service, log_undelivered
from otel_zernel.errors import CannotStart, ConfigError
from otel_zernel.telemetry.logs import SamplingFilter, set_up

_logger = logging.getLogger("otel_zernel.engine.service")

ReadSettings = Callable[[], Settings]

GRACE = 5.0
"""Seconds after `shutdown_timeout` until a process that hangs is ended by force."""
_SAME_SIGNAL = 0.2
"""Ignore a repeated signal within this many seconds: `timeout` signals the process and its group, and so sends two."""
_SETTLED = 10.0
"""Seconds after the start of a service. Its components have imported and created their long-lived objects by then."""


def run(read_settings: ReadSettings, *, exit_when_done: bool = False) -> int:
    """Runs the collector until it stops. Returns the exit status.

    Raises `ConfigError` or `CannotStart` if it cannot start.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the exporter logs the errors that gRPC's C core would print
    settings = read_settings()
    process = CollectorProcess(read_settings, exit_when_done, SystemClock())
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            status = runner.run(process.run(settings))
            process.force_end_after(1.0, status)
            return status
    finally:
        process.cancel_forced_end()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class CollectorProcess:
    """Runs one service after another: each reload creates a new one."""

    def __init__(self, read_settings: ReadSettings, exit_when_done: bool, clock: Clock) -> None:
        self._read_settings = read_settings
        self._exit_when_done = exit_when_done
        self._clock = clock
        self._service: Service | None = None
        self._shutdown_timeout = 0.0
        self._stop = asyncio.Event()
        self._stopping = False
        self._stop_signal_at = 0.0
        """Time of the first stop signal, on the monotonic clock."""
        self._next: Settings | None = None
        """The configuration to reload."""
        self._forced_end: threading.Timer | None = None

    async def run(self, settings: Settings) -> int:
        """Runs until a stop signal, or until the work is done. Returns the exit status.

        Raises `CannotStart` if the first service cannot start.
        """
        self._handle_signals()
        previous: Settings | None = None
        while True:
            self._set_up_logs(settings)
            self._service, self._shutdown_timeout = Service(settings, self._clock), settings.shutdown_timeout
            _freeze_all()
            settling = asyncio.create_task(self._freeze_when_settled(), name="settling")
            try:
                outcome = await self._service.run(self._stop, exit_when_done=self._exit_when_done)
            except CannotStart as error:
                if previous is None:
                    raise
                _logger.error("Reload failed; returning to the previous configuration: %s", error)
                settings, previous = previous, None
                continue
            finally:
                settling.cancel()
            if self._stopping or self._next is None:
                self._service = None
                _logger.info("Stopped.")
                return 0 if outcome.complete or not self._exit_when_done else 1
            settings, previous, self._next = self._next, settings, None
            self._stop.clear()

    def force_end_after(self, seconds: float, status: int) -> None:
        """Ends the process by force if a component, or one of its threads, still blocks the end after `seconds`."""
        self.cancel_forced_end()
        self._forced_end = threading.Timer(seconds, self._end_by_force, (status,))
        self._forced_end.daemon = True
        self._forced_end.start()

    def cancel_forced_end(self) -> None:
        """Cancels `force_end_after`."""
        if self._forced_end:
            self._forced_end.cancel()

    def _end_by_force(self, status: int) -> None:
        _logger.error("A component hangs; the process is ended by force.")
        if self._service:
            log_undelivered(self._service)
        os._exit(status)

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._on_stop, signal.SIGTERM)
        loop.add_signal_handler(signal.SIGINT, self._on_stop, signal.SIGINT)
        loop.add_signal_handler(signal.SIGHUP, self._on_reload)

    def _on_stop(self, received: signal.Signals) -> None:
        now = self._clock.monotonic()
        if self._stopping and now - self._stop_signal_at < _SAME_SIGNAL:
            return
        if self._stopping and self._service:
            _logger.error("Received %s again, stopping at once.", received.name)
            log_undelivered(self._service)
            os._exit(128 + received)
        _logger.info("Received %s, shutting down. Send it again to stop at once.", received.name)
        self._stopping, self._stop_signal_at = True, now
        self._stop.set()
        self.force_end_after(self._shutdown_timeout + GRACE, 1)

    def _on_reload(self) -> None:
        """Validates the new configuration before the running service is stopped."""
        try:
            self._next = self._read_settings()
        except ConfigError as error:
            problems = str(error).replace("\n", "; ")
            _logger.error("Reload refused; the running configuration stays in use: %s", problems)
            return
        _logger.info("Received SIGHUP, the new configuration is valid: reloading.")
        self._stop.set()

    async def _freeze_when_settled(self) -> None:
        await self._clock.sleep(_SETTLED)
        _freeze_newer()

    def _set_up_logs(self, settings: Settings) -> None:
        logs = settings.telemetry.logs
        limits, now = logs.sampling, self._clock.monotonic
        sampling = SamplingFilter(limits.tick, limits.initial, limits.thereafter, now) if limits.enabled else None
        set_up(logs.level, logs.encoding, sampling)
        for warning in settings.warnings:
            _logger.warning("%s", warning)


def _freeze_all() -> None:
    """Excludes all living objects from garbage collection. To be called while no service runs.

    These are about 60,000 modules, classes and settings. A full collection of them blocked the event loop for 25 ms.
    """
    gc.unfreeze()  # the objects of an earlier service
    _freeze_newer()


def _freeze_newer() -> None:
    gc.collect()  # garbage that is frozen would stay until the next reload
    gc.freeze()
