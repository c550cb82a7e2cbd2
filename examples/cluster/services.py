"""The two services that the chain needs: a broker with Kafka's protocol, and PostgreSQL."""

import importlib.util
import os
import shutil
import subprocess
import time
from pathlib import Path

from examples.cluster.network import free_port
from examples.cluster.nodes import Node

_POSTGRES_USER = "postgres"
_TOPIC = "otlp_metrics"
_SAVES_EVERY = 1.0
"""Seconds between two savings of noida-db, as `strace` shows them."""
PASSWORD = "example"  # noqa: S105  # of a database that lives as long as the example
_PLACES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


class MissingService(Exception):
    """A program is missing. The message says what to install."""


def broker(node: Node) -> str:
    """Makes the node a broker; returns the address for its clients."""
    package = importlib.util.find_spec("noida_db")
    if package is None or package.origin is None:
        raise MissingService("the broker is missing: pip install noida-db")
    program = Path(package.origin).parent / "noida-db"
    program.chmod(0o755)
    port = free_port()
    data = node.disk.folder / "broker"
    node.command = [str(program), "start", "--data-dir", str(data), "--host", node.address]
    node.command += ["--only", "kafka", "--kafka-port", str(port)]
    node.environment = os.environ
    node.saves_every = _SAVES_EVERY
    return f"{node.address}:{port}"


def create_topic(address: str, partitions: int) -> None:
    """Creates the topic of the metrics. Raises `MissingService` if the broker does not answer for 30 s."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs do not name it

    client = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for _ in range(30):
        try:
            if client.list_topics(timeout=1).brokers:
                client.create_topics([NewTopic(_TOPIC, partitions)], operation_timeout=5)[_TOPIC].result(10)
                return
        except KafkaException:
            time.sleep(0.2)
    raise MissingService(f"the broker at {address} does not answer")


def database(node: Node) -> str:
    """Makes the node a PostgreSQL; returns the URL of its database, for the password `PASSWORD`."""
    programs = _postgres_programs()
    root = os.geteuid() == 0
    node.user, port = _POSTGRES_USER if root else None, free_port()
    folder = node.disk.folder
    data = folder / "data"
    if root:
        shutil.chown(folder, _POSTGRES_USER, _POSTGRES_USER)
    secret = folder / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    words = ["--no-sync", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8"]
    command = [str(programs / "initdb"), *words, f"--username={_POSTGRES_USER}", f"--pwfile={secret}", "-D", str(data)]
    made = subprocess.run(command, capture_output=True, user=node.user, cwd=folder, check=False)  # noqa: S603
    if made.returncode:
        raise MissingService(f"PostgreSQL cannot start: {made.stderr.decode()[-500:]}")
    with (data / "pg_hba.conf").open("a") as rules:
        rules.write("host all all 0.0.0.0/0 scram-sha-256\n")
    settings = [f"port={port}", f"listen_addresses={node.address}", "unix_socket_directories=", "max_wal_size=64MB"]
    settings += ["shared_buffers=32MB", "max_connections=50", "min_wal_size=32MB", "restart_after_crash=on"]
    node.command = [
        str(programs / "postgres"),
        "-D",
        str(data),
        *(word for setting in settings for word in ("-c", setting)),
    ]
    node.environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"}
    return f"postgresql://{_POSTGRES_USER}@{node.address}:{port}/postgres"


def _postgres_programs() -> Path:
    for place in _PLACES:
        if (place / "postgres").exists():
            return place
    if which := shutil.which("initdb"):
        return Path(which).resolve().parent
    raise MissingService("PostgreSQL is missing: apt-get install postgresql")
