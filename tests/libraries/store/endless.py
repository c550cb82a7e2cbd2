"""Writes batches until it is killed, and prints the number of each batch that is stored.

Usage: python -m tests.libraries.store.endless CONFIG FIRST
"""

import asyncio
import sys

from otel_zernel.batch import Batch
from otel_zernel_libraries.store.config import WritableStoreConfig
from tests.libraries.store.given import gauges, histograms, writer

SERIES, HISTOGRAMS = 40, 5
SIZE = SERIES * 5 + HISTOGRAMS
"""Points of a batch."""


def numbered(number: int) -> Batch:
    """The batch with this number."""
    begin_ns = 1_700_000_000 * 10**9 + number * 10 * 10**9
    return Batch.join([gauges(SERIES, times=5, begin_ns=begin_ns), histograms(HISTOGRAMS, begin_ns=begin_ns)])


async def main(settings: WritableStoreConfig, first: int) -> None:
    store = writer(settings)
    for number in range(first, 1_000_000):
        await store.write(numbered(number), 0)
        print(number, flush=True)  # noqa: T201  # the test reads it


if __name__ == "__main__":
    asyncio.run(main(WritableStoreConfig.model_validate_json(sys.argv[1]), int(sys.argv[2])))
