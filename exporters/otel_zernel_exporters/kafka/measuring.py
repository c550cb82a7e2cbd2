"""The counts of the messages that the exporter sent."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from opentelemetry.metrics import Meter

from otel_zernel_exporters.kafka.declared import RECORDS
from otel_zernel_libraries.clients.kafka.producing import OutgoingMessage, UndeliveredMessage

_MOST_TOPICS: Final = 200
"""Topics with a count of their own. Data choose topics by `topic_from_attribute`, so their number has no bound."""
_OTHER: Final = "_OTHER"


class SentRecords:
    """Counts messages by topic and outcome. Messages of topics beyond the first `_MOST_TOPICS` are counted together."""

    def __init__(self, meter: Meter) -> None:
        self._records = meter.create_counter(*RECORDS.counter)
        self._topics: set[str] = set()

    def count(self, messages: Iterable[OutgoingMessage], undelivered: Sequence[UndeliveredMessage]) -> None:
        failed = Counter(self._named(one.message.topic) for one in undelivered)
        sent = Counter(self._named(one.topic) for one in messages)
        sent.subtract(failed)
        for outcome, counts in (("success", sent), ("failure", failed)):
            for topic, count in counts.items():
                if count:
                    self._records.add(count, {"topic": topic, "outcome": outcome})

    def _named(self, topic: str) -> str:
        if len(self._topics) < _MOST_TOPICS:
            self._topics.add(topic)
        return topic if topic in self._topics else _OTHER
