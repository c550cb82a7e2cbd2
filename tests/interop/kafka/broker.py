"""Apache Kafka: a broker that is its own controller. `make peers` installs it (install-kafka.sh)."""

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import uuid4

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.free_ports import free_port
from tests.interop.installed import find_peer, installed_peer
from tests.left_processes import SERVERS

_VERSION: Final = "4.3.1"
_JAVA: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.showDateTime=true")
"""The cheapest start. A broker lives for the tests of one file."""
_START: Final = 90.0
"""Seconds for the start on a busy machine."""
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required user_user=secret;"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def _settings(port: int, sasl_port: int, controller_port: int) -> dict[str, str]:
    """The user `user` has the password `secret`."""
    address = "127.0.0.1"
    clients = f"PLAINTEXT://{address}:{port},SASL://{address}:{sasl_port}"
    scram = {f"listener.name.sasl.{one.lower()}.sasl.jaas.config": _SCRAM for one in _SCRAM_MECHANISMS}
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{address}:{controller_port}",
        "listeners": f"{clients},CONTROLLER://{address}:{controller_port}",
        "advertised.listeners": clients,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "sasl.enabled.mechanisms": ",".join(("PLAIN", *_SCRAM_MECHANISMS)),
        "listener.name.sasl.plain.sasl.jaas.config": _PLAIN,
        **scram,
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        # A broker that was killed registers again when its own session is over.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }


@dataclass
class Broker:
    """A broker of Apache Kafka."""

    folder: Path
    settings: dict[str, str]
    port: int = field(default_factory=free_port)
    sasl_port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        settings = {**_settings(self.port, self.sasl_port, free_port()), "log.dirs": str(self.folder / "data")}
        lines = [f"{name}={value}\n" for name, value in {**settings, **self.settings}.items()]
        (self.folder / "kraft.properties").write_text("".join(lines))

    @property
    def brokers(self) -> list[str]:
        """The addresses for clients without credentials."""
        return [f"127.0.0.1:{self.port}"]

    @property
    def sasl_brokers(self) -> list[str]:
        """The addresses for clients with credentials."""
        return [f"127.0.0.1:{self.sasl_port}"]

    def format(self) -> None:
        users = [option for one in _SCRAM_MECHANISMS for option in ("-S", f"{one}=[name=user,password=secret]")]
        format_it = ("kafka.tools.StorageTool", "format", "-t", "zernelzernelzernelzern", "-c", "kraft.properties")
        subprocess.run(self._java(*format_it, *users), cwd=self.folder, check=True, capture_output=True, timeout=_START)

    def start(self) -> None:
        """Returns when the broker answers."""
        with (self.folder / "kafka.log").open("ab") as log:
            command = self._java("kafka.Kafka", "kraft.properties")
            self._process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        SERVERS.add(self._process.pid)
        until = time.monotonic() + _START
        while True:
            try:
                self.admin().list_topics(timeout=1)
            except KafkaException:
                assert self._process.poll() is None, (self.folder / "kafka.log").read_text()[-3000:]
                assert time.monotonic() < until, (self.folder / "kafka.log").read_text()[-3000:]
            else:
                return

    def kill(self) -> None:
        """Kills the broker, as a crash of its machine. Safe if it does not run."""
        if self._process:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.brokers[0], "log_level": 0})

    def topic(self, name: str = "", partitions: int = 1, **config: str) -> str:
        """A new topic. Underscores in the names of its settings stand for dots."""
        name = name or f"topic-{uuid4().hex[:8]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
        admin = self.admin()
        admin.create_topics([new])[name].result(30)
        return name

    def _java(self, *arguments: str) -> list[str]:
        jars = installed_peer(f"kafka-{_VERSION}", "Apache Kafka") / "lib" / "*"
        return [str(find_peer("java")), *_JAVA, "-cp", str(jars), *arguments]


@contextmanager
def running_broker(folder: Path, **settings: str) -> Iterator[Broker]:
    """A running broker with its data in the folder. Underscores in the names of settings stand for dots."""
    broker = Broker(folder, {key.replace("_", "."): value for key, value in settings.items()})
    broker.format()
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
        shutil.rmtree(folder / "data", ignore_errors=True)
