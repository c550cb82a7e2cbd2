"""The process around a service: its event loop, signals, logs, and the requests to reload."""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from otel_zernel.clock import Clock, SystemClock
from otel_zernel.config.schema import Settings
from otel_zernel.config.telemetry import LogSettings
from otel_zernel.config.watch import FileWatch, ReadFiles
from otel_zernel.engine.service import Service, log_losses
from otel_zernel.errors import CannotStart, ConfigError
from otel_zernel.runtime.garbage import freeze_all, freeze_newer, freeze_start
from otel_zernel.telemetry.logs import SamplingFilter, log_uncaught_errors, set_up, write_summaries

INTERVAL = 1.0
"""Seconds between two looks at the files."""
SETTLING = 0.25
"""Seconds in which the files must not change again: an editor, or `kubectl`, may still be writing."""

Changed = Callable[[], Mapping[str, str]]
"""The changed files, with something that differs for each content. May block."""


async def watch(changed: Changed, on_change: Callable[[list[str]], None], clock: Clock) -> None:
    """Calls `on_change` with the paths once changed files have settled. Runs until cancelled.

    Files that the reload did not read again, because it was refused, are reported only after another change.
    """
    reported: Mapping[str, str] = {}
    while True:
        await clock.sleep(INTERVAL)
        changes = await asyncio.to_thread(changed)
        if not changes or changes == reported:
            reported = changes
            continue
        await clock.sleep(SETTLING)
        if await asyncio.to_thread(changed) == changes:
            reported = changes
            on_change(sorted(changes))


_logger = logging.getLogger("otel_zernel.engine.service")

_SUMMARIES = 10.0
"""Seconds between two looks for messages that the sampling of the log has left out."""

ReadSettings = Callable[[], Settings]

GRACE = 5.0
"""Seconds after `shutdown_timeout` until a process that hangs is ended by force."""
_SAME_SIGNAL = 0.2
"""Ignore a repeated signal within this many seconds: `timeout` signals the process and its group, and so sends two."""
_SWITCH_INTERVAL = 0.0005
"""Seconds after which a thread that computes gives Python's lock to the event loop, which needs it after each system
call. Beside hostile requests, it took the median of honest ones from 34 ms, with Python's default of 5 ms, to 9 ms."""
_SETTLED = 10.0
"""Seconds after the start of a service. Its components have imported and created their long-lived objects by then."""


def run(
    read_settings: ReadSettings,
    *,
    exit_when_done: bool = False,
    watched: ReadFiles | None = None,
    on_ready: Callable[[], None] = lambda: None,
    ends_with_terminal: bool = False,
) -> int:
    """Runs the collector until it stops. Returns the exit status.

    With `watched`, a change of these files reloads the configuration, as SIGHUP does. `on_ready` is called as soon as
    all components have started and all servers listen. With `ends_with_terminal`, SIGHUP stops the collector instead.
    Raises `ConfigError` or `CannotStart` if it cannot start. With a log in JSON, a `CannotStart` is logged instead, so
    that every line is JSON.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the exporter logs the errors that gRPC's C core would print
    sys.setswitchinterval(_SWITCH_INTERVAL)
    settings = read_settings()
    process = CollectorProcess(read_settings, exit_when_done, SystemClock(), on_ready, ends_with_terminal)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            status = runner.run(_logged_as_json(process.run(settings, watched), settings.telemetry.logs))
            process.force_end_after(1.0, status)
            return status
    finally:
        process.cancel_forced_end()


async def _logged_as_json(run: Coroutine[Any, Any, int], logs: LogSettings) -> int:
    try:
        return await run
    except CannotStart as error:
        if logs.encoding != "json":
            raise
        for line in str(error).splitlines():
            _logger.error("Cannot start: %s", line)  # the sentence says it all
        return 1


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class CollectorProcess:
    """Runs one service, and hands each valid new configuration to it."""

    def __init__(
        self,
        read_settings: ReadSettings,
        exit_when_done: bool,
        clock: Clock,
        on_ready: Callable[[], None],
        ends_with_terminal: bool = False,
    ) -> None:
        self._read_settings = read_settings
        self._exit_when_done = exit_when_done
        self._clock = clock
        self._on_ready = on_ready
        self._ends_with_terminal = ends_with_terminal
        self._service: Service | None = None
        self._settings: Settings | None = None
        """The settings in use."""
        self._stop = asyncio.Event()
        self._stopping = False
        self._stop_signal_at = 0.0
        """Time of the first stop signal, on the monotonic clock."""
        self._requested = asyncio.Event()
        """Set by each request to reload. Several requests before the files are read are one."""
        self._settled: asyncio.Task[None] | None = None
        self._forced_end: threading.Timer | None = None

    async def run(self, settings: Settings, watched: ReadFiles | None = None) -> int:
        """Runs until a stop signal, or until the work is done. Returns the exit status.

        Raises `CannotStart` if a component cannot start.
        """
        self._handle_signals()
        self._service = service = Service(settings, self._clock, self._use, on_ready=self._on_ready)
        freeze_start()
        self._use(settings)
        tasks = [
            asyncio.create_task(self._reload_when_requested(service), name="reloading"),
            asyncio.create_task(self._summarize(), name="summaries of the log"),
        ]
        if watched:
            changed = FileWatch(watched, self._clock.time_ns).changed
            tasks.append(asyncio.create_task(watch(changed, self._on_changed_files, self._clock), name="watching"))
        try:
            outcome = await service.run(self._stop, exit_when_done=self._exit_when_done)
        finally:
            for task in (*tasks, self._settled):
                if task:
                    task.cancel()
        self._service = None
        if not outcome.lossless:
            lost = outcome.undelivered + outcome.lost
            _logger.error("Stopped. Lost %s items, as the lines above say; the exit status is 1.", f"{lost:,}")
            return 1
        _logger.info("Stopped.")
        return 0 if outcome.complete or not self._exit_when_done else 1

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
            log_losses(self._service)
        os._exit(status)

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._on_stop, signal.SIGTERM)
        loop.add_signal_handler(signal.SIGINT, self._on_stop, signal.SIGINT)
        if not self._ends_with_terminal:
            loop.add_signal_handler(signal.SIGHUP, self._on_reload)
        elif signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup asks for
            loop.add_signal_handler(signal.SIGHUP, self._on_stop, signal.SIGHUP)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # `__main__` has blocked it until here

    def _on_stop(self, received: signal.Signals) -> None:
        now = self._clock.monotonic()
        if self._stopping and now - self._stop_signal_at < _SAME_SIGNAL:
            return
        if self._stopping and self._service:
            _logger.error("Received %s again, stopping at once.", received.name)
            log_losses(self._service)
            os._exit(128 + received)
        _logger.info("Received %s, shutting down. Send it again to stop at once.", received.name)
        self._stopping = True
        self._stop_signal_at = now
        self._stop.set()
        self.force_end_after((self._settings.shutdown_timeout if self._settings else 0.0) + GRACE, 1)

    def _on_reload(self) -> None:
        _logger.info("Received SIGHUP, reading the configuration.")
        self._requested.set()

    def _on_changed_files(self, paths: list[str]) -> None:
        _logger.info("The configuration changed: %s.", ", ".join(paths))
        self._requested.set()

    async def _reload_when_requested(self, service: Service) -> None:
        """Validates the newest configuration after each request, and gives it to the service if it is valid."""
        while True:
            await self._requested.wait()
            self._requested.clear()
            try:
                settings = await asyncio.to_thread(self._read_settings)
            except ConfigError as error:
                problems = str(error).replace("\n", "; ")
                _logger.error("Reload refused; the running configuration stays in use: %s", problems)
            except Exception as error:
                _logger.exception("Cannot read the configuration: %s: %s", type(error).__name__, error)
            else:
                await service.reload(settings)

    def _use(self, settings: Settings) -> None:
        """Applies the settings of the process: they are in use from now on."""
        if self._settings is None or settings.telemetry.logs != self._settings.telemetry.logs:
            self._set_up_logs(settings.telemetry.logs)
        for warning in settings.warnings:
            _logger.warning("%s", warning)
        is_first, self._settings = self._settings is None, settings
        if self._settled:
            self._settled.cancel()
        self._settled = asyncio.create_task(self._freeze_when_settled(is_first), name="settling")

    async def _freeze_when_settled(self, is_first: bool) -> None:
        await self._clock.sleep(_SETTLED)
        freeze_newer() if is_first else freeze_all()

    async def _summarize(self) -> None:
        while True:
            await self._clock.sleep(_SUMMARIES)
            write_summaries()

    def _set_up_logs(self, logs: LogSettings) -> None:
        limits, now = logs.sampling, self._clock.monotonic
        sampling = SamplingFilter(limits.tick, limits.initial, limits.thereafter, now) if limits.enabled else None
        set_up(logs.level, logs.encoding, sampling, initial_fields=logs.initial_fields)
        log_uncaught_errors()
