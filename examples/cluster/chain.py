"""The chain: 4 streamers, a broker, 3 collectors, a database and 2 gateways."""

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from examples.cluster.disks import Disk
from examples.cluster.network import Network, free_port
from examples.cluster.nodes import Node
from examples.cluster.services import PASSWORD, broker, create_topic, database

STREAMERS, COLLECTORS, GATEWAYS = 4, 3, 2
PARTITIONS = 6
"""Partitions of the topic: two for each collector."""
CONFIGS = Path(__file__).parent / "configs"


@dataclass
class Chain:
    """All nodes, in the order in which they start."""

    folder: Path
    network: Network
    rows: Path
    """The file that the streamers read."""
    batch: int = 100
    """Rows that a streamer reads at a time."""
    interval: str = "200ms"
    """The pause between two batches of a streamer."""
    gateway_count: int = GATEWAYS
    nodes: dict[str, Node] = field(default_factory=dict)
    broker: str = ""
    """The address of the broker."""
    store_url: str = ""
    gateways: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The addresses of the gateways, by their names."""

    def build(self) -> None:
        """Makes all nodes. Raises `MissingService`."""
        address = self.broker = broker(self._add("broker"))
        self.store_url = database(self._add("database"))
        for index in range(COLLECTORS):
            node = self._add(f"collector-{index}")
            self._configure(node, "collector", {"BROKER": address})
        for index in range(STREAMERS):
            settings = {"SHARD": str(index), "SHARDS": str(STREAMERS), "BATCH": str(self.batch)}
            settings |= {"FILE": str(self.rows), "INTERVAL": self.interval, "BROKER": address}
            self._configure(self._add(f"streamer-{index}"), "streamer", settings)
        for index in range(self.gateway_count):
            node = self._add(f"gateway-{index}")
            host, port = self.gateways[node.name] = node.address, free_port()
            self._configure(node, "gateway", {"LISTEN": f"{host}:{port}"})

    def start(self) -> None:
        """Starts all nodes. Those whose service is not ready yet try again by themselves. Raises `MissingService`."""
        self.nodes["broker"].start()
        create_topic(self.broker, PARTITIONS)
        for name, node in self.nodes.items():
            if name != "broker":
                node.start()

    def watch(self) -> None:
        """Starts ended processes again. Call it several times a second."""
        for node in self.nodes.values():
            node.watch()

    def wait(self, seconds: float) -> Iterator[None]:
        """Watches the nodes for so long, and yields meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.watch()
            yield
            time.sleep(0.1)

    def close(self) -> None:
        """Ends all nodes, and removes the network and the disks."""
        with ExitStack() as ending:
            ending.callback(self.network.close)
            for node in self.nodes.values():
                ending.callback(node.disk.close)
                ending.callback(node.stop)

    def _add(self, name: str) -> Node:
        disk = Disk(self.folder / name)
        self.nodes[name] = node = Node(name, self.network.add(name), disk, self.network)
        return node

    def _configure(self, node: Node, config: str, settings: Mapping[str, str]) -> None:
        node.command = [sys.executable, "-m", "otel_zernel", "run", "--config", str(CONFIGS / f"{config}.yaml")]
        queue = node.disk.folder / "queue"
        queue.mkdir(exist_ok=True)
        root = str(Path(__file__).parents[2])
        store = {"STORE_URL": self.store_url, "STORE_PASSWORD": PASSWORD, "QUEUE": str(queue), "NAME": node.name}
        node.environment = {**os.environ, "PYTHONPATH": root, **store, **settings}
