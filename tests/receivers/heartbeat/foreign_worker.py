"""A worker of its own process, for `kill -9`: `python -m tests.receivers.heartbeat.foreign_worker PORT ID`."""

import sys
import time
from collections.abc import Iterator
from typing import Any

import grpc

from tests.receivers.heartbeat.workers import generated, heartbeat, registration

INTERVAL = 0.05
"""Seconds between two heartbeats."""


def beats(worker_id: str) -> Iterator[Any]:
    while True:
        yield heartbeat(worker_id, 50)
        time.sleep(INTERVAL)


def main(port: str, worker_id: str) -> None:
    """Sends until killed. Connects again if the master ends."""
    while True:
        try:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                stub = generated()[1].MasterWorkerStub(channel)
                stub.RegisterWorker(registration(worker_id, total_cpu=2))
                for _ in stub.StreamHeartbeats(beats(worker_id)):
                    pass
        except grpc.RpcError:
            time.sleep(INTERVAL)


if __name__ == "__main__":
    main(*sys.argv[1:])
