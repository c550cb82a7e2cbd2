"""The whole chain on one machine: streamers, Kafka, collectors, PostgreSQL and gateways, and faults to survive."""
