"""The metrics of the exporter about itself."""

from otel_zernel.component.declaration import by_name, own

RECORDS = own(
    "otelcol_kafka_exporter_records",
    "{record}",
    "Messages that the kafka exporter sent, by topic (`_OTHER` beyond 200) and outcome (success, failure).",
    ("topic", "outcome"),
    "from the first message on",
)
SPLIT_BATCHES = own(
    "zernel.kafka.split_batches",
    "{batch}",
    "Batches that the kafka exporter split because they were larger than a message may be.",
    when="from the first such batch on",
)
METRICS = by_name(RECORDS, SPLIT_BATCHES)
