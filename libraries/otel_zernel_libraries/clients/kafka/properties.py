"""The properties of librdkafka for a configuration.

https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md
"""

import logging
from typing import Any, Final

from otel_zernel.component import Logger
from otel_zernel_libraries.clients.kafka.client_config import KafkaClientConfig
from otel_zernel_libraries.clients.tls import Pem, read_pem

Properties = dict[str, Any]

_LONGEST_RECONNECT: Final = 2.0
"""Seconds between attempts to reach a broker. librdkafka's 10 s would prolong every outage."""


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def client_properties(config: KafkaClientConfig, setting: str) -> Properties:
    """The properties of any client. Reads the files of `tls`. Raises `CannotStart`, which names an unusable one.

    `setting` is the path of the component in the configuration.
    """
    backoff = max(1, milliseconds(config.metadata.retry.backoff))
    properties: Properties = {
        "bootstrap.servers": ",".join(config.brokers),
        "client.id": config.client_id,
        "connections.max.idle.ms": milliseconds(config.conn_idle_timeout),
        "topic.metadata.refresh.interval.ms": milliseconds(config.metadata.refresh_interval),
        "retry.backoff.ms": backoff,
        "retry.backoff.max.ms": max(1000, backoff),
        "reconnect.backoff.max.ms": milliseconds(_LONGEST_RECONNECT),
        "enable.metrics.push": False,
        "security.protocol": _protocol(config),
    }
    if config.rack_id:
        properties["client.rack"] = config.rack_id
    if config.resolve_canonical_bootstrap_servers_only:
        properties["client.dns.lookup"] = "resolve_canonical_bootstrap_servers_only"
    return {**properties, **_tls(config, setting), **_sasl(config)}


def _protocol(config: KafkaClientConfig) -> str:
    sasl = "SASL_" if config.auth and config.auth.sasl else ""
    return sasl + ("SSL" if config.uses_tls else "PLAINTEXT")


def _tls(config: KafkaClientConfig, setting: str) -> Properties:
    if config.tls is None or not config.uses_tls:
        return {}
    pem = read_pem(config.tls, f"{setting}::tls")
    return {**_pem(pem), "enable.ssl.certificate.verification": not config.tls.insecure_skip_verify}


def _pem(pem: Pem) -> Properties:
    parts = {"ssl.ca.pem": pem.ca, "ssl.certificate.pem": pem.certificate, "ssl.key.pem": pem.key}
    return {name: part.decode("ascii", "ignore") for name, part in parts.items() if part is not None}


def _sasl(config: KafkaClientConfig) -> Properties:
    sasl = config.auth.sasl if config.auth else None
    if sasl is None:
        return {}
    if sasl.mechanism == "OAUTHBEARER":
        return {"sasl.mechanism": sasl.mechanism}
    return {
        "sasl.mechanism": sasl.mechanism,
        "sasl.username": sasl.username,
        "sasl.password": sasl.password.get_secret_value(),
    }


class ClientLog:
    """Takes librdkafka's lines and writes them at debug level: the clients report their problems themselves."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger

    def log(self, level: int, text: str, *values: object) -> None:
        """Called in the thread of the client."""
        self._logger.log(min(level, logging.DEBUG), text, *values)
