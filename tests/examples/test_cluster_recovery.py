"""What the example of the cluster says about its faults, without a cluster."""

import socket
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from examples.cluster.chain import Chain
from examples.cluster.counting import Store, Stored
from examples.cluster.faults import UnknownFault, chosen
from examples.cluster.front import Front, UnusablePort
from examples.cluster.network import Loopback
from examples.cluster.recovery import Recovery
from tests.answering import answering


class Growing(Store):
    """A store with 1,000 rows more at each look."""

    def __init__(self) -> None:
        super().__init__("")
        self._rows = count(0, 1000)

    def count(self) -> Stored:
        rows = next(self._rows)
        return Stored(rows, rows)


class Still(Chain):
    """A chain without nodes, which waits for nothing."""

    def wait(self, seconds: float) -> Iterator[None]:
        yield


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Still(tmp_path, Loopback(), tmp_path / "rows.csv")


def test_a_gateway_has_recovered_when_it_answers(chain: Chain) -> None:
    recovery = Recovery(chain, Growing(), 10**12, 10.0)
    with answering(lambda path, _: (200 if path == "/health" else 404, b"")) as port:
        chain.gateways["gateway-0"] = "127.0.0.1", port
        assert recovery.wait(60, "gateway-0") is not None
    assert recovery.wait(0.05, "gateway-0") is None
    assert recovery.wait(60, "broker") is not None


def test_no_recovery_is_seen_when_all_rows_are_stored(chain: Chain) -> None:
    recovery = Recovery(chain, Growing(), 1000, 10.0)
    assert recovery.wait(60) is None
    assert recovery.progress() == "2,000 of 1,000 rows are stored; more --rows are needed"


def test_a_fault_that_is_not_possible_is_named_with_those_that_are(chain: Chain) -> None:
    with pytest.raises(UnknownFault, match=r"unknown faults: boil:broker; possible: .*; others need root"):
        chosen(["boil:broker"], chain)


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UnusablePort, match=f"port {port}: .*--port"):
            Front(port, []).start()
