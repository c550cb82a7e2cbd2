"""The metrics of the receiver about itself."""

from otel_zernel.component.declaration import DeclaredMetric, by_name, own

RECORDS = own(
    "otelcol_kafka_receiver_records",
    "{record}",
    "Records that the kafka receiver fetched, by topic and partition.",
    ("topic", "partition"),
    "from the first record on",
)
PARTITION_START = own(
    "otelcol_kafka_receiver_partition_start",
    "{partition}",
    "Partitions that the consumer group assigned to the kafka receiver.",
)
PARTITION_CLOSE = own(
    "otelcol_kafka_receiver_partition_close", "{partition}", "Partitions that the kafka receiver gave back, or lost."
)
UNDECODABLE_RECORDS = own(
    "zernel.kafka.undecodable_records",
    "{record}",
    "Records that are not OTLP, by topic and by their end (dead_letter, dropped).",
    ("topic", "outcome"),
    "from the first such record on",
)
REPEATED_RECORDS = own(
    "zernel.kafka.repeated_records",
    "{record}",
    "Records that the pipelines took after their partition had gone to another member: that member reads them again.",
    ("topic",),
    "from the first such record on",
)
OFFSET_LAG = DeclaredMetric(
    "otelcol_kafka_receiver_offset_lag",
    "{record}",
    "gauge",
    "Records of a partition that the pipelines have not taken yet.",
    ("topic", "partition"),
    "while the partition is assigned to the receiver",
    own=True,
)
CURRENT_OFFSET = DeclaredMetric(
    "otelcol_kafka_receiver_current_offset",
    "{record}",
    "gauge",
    "The offset of the last record of a partition that the pipelines took.",
    ("topic", "partition"),
    "while the partition is assigned to the receiver",
    own=True,
)
METRICS = by_name(
    RECORDS, PARTITION_START, PARTITION_CLOSE, UNDECODABLE_RECORDS, REPEATED_RECORDS, OFFSET_LAG, CURRENT_OFFSET
)
