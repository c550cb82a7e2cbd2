"""The ports of components that restart: their clients wait for the next instance, and other ports are free."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from otel_zernel.errors import CannotStart
from otel_zernel.runtime.handover import HANDOVER
from otel_zernel.testing import until
from otel_zernel.types import Address
from otel_zernel_libraries.serving.serving import listen, listen_all
from tests.free_ports import free_port

SETTING = "receivers::otlp::protocols::http::endpoint"
HOST = "127.0.0.1"


@pytest.fixture(autouse=True)
def nothing_held() -> Iterator[None]:
    yield
    HANDOVER.release()


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with closing(socket.create_connection((HOST, port), 60)) as client:
        yield client


def is_refused(port: int) -> bool:
    with suppress(ConnectionRefusedError), connected(port):
        return False
    return True


def restart(port: int, *components: str) -> None:
    """A component listens on the port, and stops in a reload that restarts these components."""
    with closing(listen(Address(HOST, port), SETTING)):
        HANDOVER.hold(components)


def test_a_client_that_comes_between_two_instances_is_accepted_by_the_next_one() -> None:
    restart(port := free_port(), "receivers::otlp")
    with connected(port) as client, closing(listen(Address(HOST, port), SETTING)) as following:
        accepted, peer = following.accept()
        accepted.close()
        assert peer == client.getsockname()


def test_both_sockets_of_localhost_are_handed_over() -> None:
    address = Address("localhost", free_port())
    former = listen_all(address, SETTING)
    HANDOVER.hold(["receivers::otlp"])
    for listener in former:
        listener.close()
    following = listen_all(address, SETTING)
    assert len(following) == len(former)
    assert not HANDOVER.release()
    for listener in following:
        listener.close()


@pytest.mark.parametrize("restarted", [[], ["receivers::otlp/b"], ["receivers::otl"], ["exporters::otlp"]])
def test_the_port_of_a_component_that_does_not_restart_is_free_at_once(restarted: list[str]) -> None:
    restart(port := free_port(), *restarted)
    assert is_refused(port)


def test_another_component_takes_a_port_that_its_owner_leaves() -> None:
    restart(port := free_port(), "receivers::otlp")
    with closing(listen(Address(HOST, port), "receivers::otlp/b::protocols::http::endpoint")), connected(port):
        pass


def test_the_next_instance_listens_on_all_addresses_of_the_same_port() -> None:
    restart(port := free_port(), "receivers::otlp")
    with closing(listen(Address("0.0.0.0", port), SETTING)) as following:
        assert following.getsockname() == ("0.0.0.0", port)


def test_a_port_of_another_program_is_still_an_error() -> None:
    restart(free_port(), "receivers::otlp")
    with socket.create_server((HOST, 0)) as taken, pytest.raises(CannotStart, match="another program has this port"):
        listen(Address(HOST, taken.getsockname()[1]), SETTING)


async def test_a_port_that_no_next_instance_takes_is_free_after_a_moment() -> None:
    restart(port := free_port(), "receivers::otlp")
    assert not is_refused(port)
    HANDOVER.release_after(0.01)
    await until(lambda: is_refused(port))
