"""The signals that a server does not take at all, although it takes others: they are stopped."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from otel_zernel.batch import Signal
from otel_zernel.component import Context
from otel_zernel.errors import Correctable, Permanent, Retryable, Unwanted
from otel_zernel_exporters.otlp.signals import OtlpSignal, all_signals

_PAUSE: Final = 3600.0
"""Seconds after which a batch of a stopped signal is tried again: somebody may have corrected the server."""
Probe = Callable[[OtlpSignal], Awaitable[bool]]
"""Whether the server takes an empty request of a signal."""


class UnwantedSignals:
    """What one server has taken so far, and what it never will."""

    def __init__(self, context: Context, signals: Iterable[Signal], advice: Callable[[Sequence[Signal]], str]) -> None:
        """`signals` have one endpoint. `advice` names the option, and its value for the signals that are left."""
        self._context = context
        self._signals = frozenset(signals)
        self._advice = advice
        self._accepted: set[Signal] = set()
        self._never: dict[Signal, str] = {}
        """The stopped signals, and why."""
        self._next_attempt: dict[Signal, float] = {}
        """By stopped signal, in seconds of the monotonic clock."""

    def check(self, signal: OtlpSignal) -> None:
        """Raises `Unwanted` if the server does not take the signal."""
        if reason := self._never.get(signal.name):
            now = self._context.clock.monotonic()
            if now < self._next_attempt[signal.name]:
                raise Unwanted(reason)
            self._next_attempt[signal.name] = now + _PAUSE

    def accepted(self, signal: OtlpSignal) -> None:
        """The server has taken a request of this signal."""
        self._accepted.add(signal.name)
        if self._never.pop(signal.name, None):
            self._report()
            self._context.logger.info("The server takes %s now; they are sent again", signal.name)

    async def judged(self, signal: OtlpSignal, error: Retryable | Permanent, probe: Probe) -> Retryable | Permanent:
        """The error of a request for something that the server does not have; permanent if it is only this signal.

        The endpoint is wrong if the server takes no signal, and so may be a URL of one signal. Then the batch is kept.
        """
        if not isinstance(error, Correctable) or signal.name in self._accepted or signal.name not in self._signals:
            return error
        for other in all_signals():
            if other.name == signal.name or other.name not in self._signals:
                continue
            if other.name in self._accepted or await probe(other):
                return self._stop(signal, other, error.code)
        return error

    def _stop(self, signal: OtlpSignal, other: OtlpSignal, code: str) -> Unwanted:
        if signal.name not in self._never:
            left = [one.name for one in all_signals() if one.name in self._signals - {signal.name} - self._never.keys()]
            reason = f"the server takes {other.name}, but no {signal.name} ({code}); {self._advice(left)}"
            self._never[signal.name] = reason
            self._report()
            self._context.logger.error("Stopped %s for this exporter: %s", signal.name, reason)
        self._next_attempt[signal.name] = self._context.clock.monotonic() + _PAUSE
        return Unwanted(self._never[signal.name])

    def _report(self) -> None:
        stopped = "; ".join(self._never.values())
        self._context.report(f"{stopped}; these are dropped" if stopped else None)
