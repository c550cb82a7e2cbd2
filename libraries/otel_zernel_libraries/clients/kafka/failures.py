"""The errors of Kafka: whether a repetition may help, and a sentence for the user."""

import re
from typing import TYPE_CHECKING, Final

from otel_zernel.errors import ZernelError

if TYPE_CHECKING:  # an optional package
    from confluent_kafka import KafkaError


class KafkaFailed(ZernelError):
    """A request to the brokers failed. The message is the cause, and the remedy if it is known."""


MSG_SIZE_TOO_LARGE: Final = 10
RECORD_LIST_TOO_LARGE: Final = 18
TOO_LARGE: Final = frozenset({MSG_SIZE_TOO_LARGE, RECORD_LIST_TOO_LARGE})
ALL_BROKERS_DOWN: Final = -187
_INVALID_ARGUMENT: Final = -186
_CONNECTION_REFUSED: Final = frozenset({58, -169, -181})
"""Wrong credentials, and TLS that fails."""
FENCED: Final = KafkaFailed("another member of the group has the same group_instance_id: give each collector its own")

_RETRIABLE: Final = frozenset(
    {
        *(2, 3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 38, 41, 56, 71, 72, 74, 75, 78, 79, 80, 84, 88, 89, 100, 103),
        *(45, 46, 47, 59, 67, 90),  # of idempotent producers: a new one has a new identity
    }
)
"""Codes of brokers. The first row is that of https://kafka.apache.org/protocol#protocol_error_codes."""

_ADVICE: Final = {
    -152: KafkaFailed("the client ended before it sent the message"),
    -151: KafkaFailed("the client ended before the broker confirmed the message"),
    -192: KafkaFailed("no broker confirmed the messages in time"),
    -195: KafkaFailed("the connection to the broker is lost"),
    -193: KafkaFailed("the host of the broker cannot be resolved: check brokers"),
    -187: KafkaFailed("no broker can be reached: check brokers, and whether they run"),
    -188: KafkaFailed("the topic does not exist: create it, or let the brokers create topics"),
    -190: KafkaFailed("the partition does not exist"),
    -181: KafkaFailed("TLS fails: check tls::ca_file, and whether this port of the broker speaks TLS"),
    -169: KafkaFailed("the broker refuses the credentials: check auth::sasl"),
    3: KafkaFailed("the topic or the partition does not exist: create it, or let the brokers create topics"),
    -147: KafkaFailed("the client did not ask for records for too long, so the group removed it"),
    10: KafkaFailed("the message is larger than the broker or the topic allows (max.message.bytes)"),
    17: KafkaFailed("the broker refuses the name of the topic"),
    19: KafkaFailed("too few replicas of the partition are in sync (min.insync.replicas)"),
    20: KafkaFailed("too few replicas of the partition are in sync (min.insync.replicas)"),
    23: KafkaFailed(
        "the members of the group divide partitions in different ways: give all the same group_rebalance_strategies, or"
        " choose another group_id"
    ),
    24: KafkaFailed("the broker refuses the name of the group: correct group_id"),
    26: KafkaFailed(
        "the broker refuses session_timeout: choose one between its group.min.session.timeout.ms and"
        " group.max.session.timeout.ms"
    ),
    29: KafkaFailed("the user may not use this topic: add an ACL for the topic"),
    30: KafkaFailed("the user may not use this consumer group: add an ACL for the group"),
    31: KafkaFailed("the user may not use this cluster: add an ACL for the cluster (IdempotentWrite, for acks all)"),
    58: KafkaFailed("the broker refuses the credentials: check auth::sasl"),
    81: KafkaFailed("the group is full: stop a member, or raise group.max.size of the brokers"),
    82: FENCED,
}
_TLS, _CONNECTION_LOST = -181, -195
_WORDS_OF_OPENSSL: Final = "SSL routines"
"""The client may report a handshake that fails as a connection that is lost."""
_COUNTERS: Final = re.compile(r" \(after \d+ms in state [^)]*\)")
"""The part of librdkafka's words that differs at each repetition."""


def is_retriable(code: int) -> bool:
    """Whether a message that failed with this code may succeed later, although nobody corrects anything.

    Negative codes are those of the client: outages, timeouts, and its own end.
    """
    return code in _RETRIABLE or (code < 0 and code != _INVALID_ARGUMENT)


def is_correctable(code: int) -> bool:
    """Whether somebody has to correct a right, the name of a topic, or a setting, after which the message succeeds."""
    return code > 0 and code not in _RETRIABLE


def kafka_reason(error: "KafkaError") -> str:
    """The cause, with the words of the library in parentheses."""
    words = _COUNTERS.sub("", error.str() or error.name()).strip()
    is_tls = error.code() == _CONNECTION_LOST and _WORDS_OF_OPENSSL in words
    advice = _ADVICE.get(_TLS if is_tls else error.code())
    if advice and error.code() == ALL_BROKERS_DOWN:  # its words count brokers, wrongly
        return str(advice)
    return f"{advice} ({words})" if advice else words


def is_explained(error: "KafkaError", problem: int | None) -> bool:
    """Whether the error only follows from the code of a known problem: if all brokers refuse a client, all are down."""
    return error.code() == ALL_BROKERS_DOWN and problem in _CONNECTION_REFUSED
