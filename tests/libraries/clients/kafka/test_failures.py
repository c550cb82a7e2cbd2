"""Kafka's errors in words that say what to do."""

from confluent_kafka import KafkaError

from otel_zernel_libraries.clients.kafka.failures import kafka_reason


def test_a_handshake_that_fails_is_named_although_the_client_reports_a_lost_connection() -> None:
    handshake = KafkaError(-195, "ssl://broker:9093/1: error:0A000086:SSL routines::certificate verify failed")
    assert kafka_reason(handshake).startswith("TLS fails: check tls::ca_file")
    assert kafka_reason(KafkaError(-195, "broker:9092/1: Disconnected")).startswith(
        "the connection to the broker is lost"
    )
