"""The signals that a server does not take at all, although it takes others: they are stopped."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final
from weakref import ref

from otel_zernel.batch import STABLE_SIGNALS, Batch, Signal
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
        """Of these, the server has taken a request, perhaps an empty one."""
        self._never: dict[Signal, str] = {}
        """The stopped signals, and the codes of the answers."""
        self._next_attempt: dict[Signal, float] = {}
        """By stopped signal, in seconds of the monotonic clock."""
        self._trials: dict[Signal, ref[Batch]] = {}
        """By stopped signal, the batch that is tried again. An answer about the signal, or the batch's end, ends it."""

    def check(self, signal: OtlpSignal, batch: Batch) -> None:
        """Raises `Unwanted` if the server does not take the signal, unless this batch is to try it again."""
        if signal.name not in self._never:
            return
        trial = self._trials.get(signal.name, lambda: None)()
        if trial is batch:
            return
        if trial is not None or self._context.clock.monotonic() < self._next_attempt[signal.name]:
            raise Unwanted(self._reason())
        self._trials[signal.name] = ref(batch)

    def accepted(self, signal: OtlpSignal) -> None:
        """The server has taken a request of this signal."""
        if signal.name in self._accepted:
            return
        self._accepted.add(signal.name)
        stopped = self._never.pop(signal.name, None)
        if stopped or self._never:  # the advice names the signals that the server takes
            self._report()
        if stopped:
            self._trials.pop(signal.name, None)
            self._context.logger.info("The server takes %s now; they are sent again", signal.name)

    async def judged(self, signal: OtlpSignal, error: Retryable | Permanent, probe: Probe) -> Retryable | Permanent:
        """The error of a request for something that the server does not have; permanent if it is only this signal.

        The endpoint is wrong if the server takes no signal now, and so may be a URL of one signal. Then the batch is
        kept.
        """
        if not isinstance(error, Correctable) or signal.name in self._accepted or signal.name not in self._signals:
            return error
        usual = self._signals.intersection(STABLE_SIGNALS) - {signal.name}  # few servers have a path for profiles
        others = [signal for signal in all_signals() if signal.name in usual]
        taken = [code for code in others if await probe(code)]
        for code in taken:
            self.accepted(code)
        return self._stop(signal, error.code) if taken and signal.name not in self._accepted else error

    def _stop(self, signal: OtlpSignal, code: str) -> Unwanted:
        self._trials.pop(signal.name, None)
        self._next_attempt[signal.name] = self._context.clock.monotonic() + _PAUSE
        if signal.name not in self._never:
            self._never[signal.name] = code
            self._report()
            self._context.logger.error("Stopped %s for this exporter: %s", signal.name, self._reason())
        return Unwanted(self._reason())

    def _reason(self) -> str:
        """Why signals are stopped, and what to do about all of them."""
        left = [signal.name for signal in all_signals() if signal.name in self._signals & self._accepted]
        stopped = " and no ".join(
            f"{signal.name} ({self._never[signal.name]})" for signal in all_signals() if signal.name in self._never
        )
        return f"the server takes {' and '.join(left)}, but no {stopped}; {self._advice(left)}"

    def _report(self) -> None:
        self._context.report(f"{self._reason()}; these are dropped" if self._never else None)
