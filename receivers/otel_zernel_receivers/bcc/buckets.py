"""The bounds of histograms, and the bucket of each slot."""

from collections.abc import Mapping, Sequence

from otel_zernel_receivers.bcc.config import BucketsConfig


def bounds(config: BucketsConfig, scale: float) -> list[float]:
    """The explicit bounds in the metric's unit. OTLP's bounds belong to the bucket below them.

    Programs count integers, so the bound of a slot is its largest integer: slot n of bpf_log2l() has the values from
    2 ** (n - 1) to 2 ** n - 1, and slot 1 has 0 too.
    """
    slots = range(config.min, config.max + 1)
    match config.type:
        case "fixed":
            largest: Sequence[float] = config.bounds
        case "log2":
            largest = [(1 << slot) - 1 for slot in slots]
        case "linear":
            largest = [(slot + 1) * config.step - 1 for slot in slots]
    return [scaled(number, scale) for number in largest]


def scaled(number: float, scale: float) -> float:
    """The number in the unit. A division by 1e9 is exact where a product with 1e-9 is not: 5000 ns are 5e-06 s."""
    per_unit = 1 / scale
    return number / round(per_unit) if scale < 1 and abs(per_unit - round(per_unit)) < 1e-6 else number * scale


def counts(config: BucketsConfig, slots: Mapping[int, int]) -> list[int]:
    """The count of each bucket, from the values of the slots. The last bucket has no bound."""
    length = len(config.bounds) if config.type == "fixed" else config.max - config.min + 1
    first = 0 if config.type == "fixed" else config.min
    found = [0] * (length + 1)
    for slot, count in slots.items():
        if slot != config.sum_slot:
            found[min(max(slot - first, 0), length)] += count
    return found
