"""The csv receiver: its contract. The reading of the files is in `reading`, which needs numpy."""

from typing import TYPE_CHECKING

from otel_zernel.batch import Signal
from otel_zernel.component import Emit, Receiver
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_libraries.extras import missing_packages
from otel_zernel_receivers.csv.config import CsvReceiverConfig

if TYPE_CHECKING:
    from otel_zernel_receivers.csv.reading import CsvReading


class CsvReceiver(Receiver):
    """Reads measurements from CSV files. Ends after the last row, unless it loops or follows."""

    Config = CsvReceiverConfig
    stability = "beta"
    signals: frozenset[Signal] = frozenset({"metrics"})

    @classmethod
    def missing(cls) -> str | None:
        return missing_packages("the csv receiver", "pyarrow")

    async def run(self, emit: Emit) -> None:
        """Emits batches of rows. Raises `CannotStart` for a file that cannot be read.

        All files are checked before the first batch.
        """
        reading = await run_in_thread(self._reading)
        await reading.run(emit)

    def _reading(self) -> "CsvReading":
        """In a thread: the import of numpy takes 50 ms."""
        from otel_zernel_receivers.csv.reading import CsvReading

        return CsvReading(self.config, self.context)
