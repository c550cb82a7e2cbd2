"""The signals that a server does not take at all, although it takes others: they are stopped until a restart."""

from collections.abc import Awaitable, Callable, Iterable

from otel_zernel.batch import Signal
from otel_zernel.component import Context
from otel_zernel.errors import Correctable, Permanent, Retryable
from otel_zernel_exporters.otlp.signals import OtlpSignal, all_signals

Probe = Callable[[OtlpSignal], Awaitable[bool]]
"""Whether the server takes an empty request of a signal."""


class UnwantedSignals:
    """What one server has taken so far, and what it never will."""

    def __init__(self, context: Context, signals: Iterable[Signal], advice: str) -> None:
        """`signals` have one endpoint. `advice` names the option that leaves a signal out."""
        self._context = context
        self._signals = frozenset(signals)
        self._advice = advice
        self._accepted: set[Signal] = set()
        self._never: dict[Signal, str] = {}

    def check(self, signal: OtlpSignal) -> None:
        """Raises `Permanent` if the server does not take the signal."""
        if reason := self._never.get(signal.name):
            raise Permanent(reason)

    def accepted(self, signal: OtlpSignal) -> None:
        """The server has taken a request of this signal."""
        self._accepted.add(signal.name)

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
                return self._stop(signal, other, error)
        return error

    def _stop(self, signal: OtlpSignal, other: OtlpSignal, error: Correctable) -> Permanent:
        reason = f"the server takes {other.name}, but no {signal.name}; {self._advice} ({error})"
        if signal.name not in self._never:
            self._never[signal.name] = reason
            stopped = "; ".join(self._never.values())
            self._context.report(f"{stopped}; these are dropped until a restart")
            self._context.logger.error("Stopped %s for this exporter until a restart: %s", signal.name, reason)
        return Permanent(reason)
