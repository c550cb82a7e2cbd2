"""The memory of a collector with the eBPF receiver.

Needs root, Linux 6.13 and PyTorch. The collector watches a job with steps of usual length, then also a second job with
very short steps: thousands of scopes per second.
"""

from benchmarks import BenchmarkRow
from benchmarks.training.watched_training import Training, collector, training, why_not

STARTS = 5
TURNS = 4
LONG, SHORT = (1024, 32, 80), (16, 32, 1000)
"""Width, batch and steps of a block: about 12 ms and 0.3 ms a step."""
MEMORY_BAR = 90


def run() -> list[BenchmarkRow]:
    """All rows. Takes half a minute."""
    name = "eBPF, percentiles, Prometheus: RSS"
    if reason := why_not():
        return [BenchmarkRow(name, f"skipped: {reason}")]
    with training(*LONG) as long, training(*SHORT) as short:
        memory = [_memory_mb(long, short) for _ in range(STARTS)]
    usual, busy = (max(column) for column in zip(*memory, strict=True))
    return [_row(name, usual), _row("  beside two jobs, 7,000 scopes a second", busy)]


def _row(name: str, memory_mb: float) -> BenchmarkRow:
    return BenchmarkRow(name, f"{memory_mb:.0f} MB", f"<= {MEMORY_BAR} MB", memory_mb <= MEMORY_BAR)


def _memory_mb(long: Training, short: Training) -> tuple[float, float]:
    """The collector's memory in MB after a block of long steps, and after further blocks of short steps."""
    with collector() as process:
        long.train()
        usual = process.memory_info().rss / 1e6
        for _ in range(TURNS):
            short.train()
        return usual, process.memory_info().rss / 1e6
