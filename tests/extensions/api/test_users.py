"""Routes that start programs belong to the collector's user, unless there are credentials."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from otel_zernel_extensions.api import ApiExtension
from otel_zernel_extensions.api.admission import user_of
from tests.extensions.api.serving import ROUTES, Keeper, running

NOBODY = 65534
_CLIENT = """
import sys, urllib.request, urllib.error
request = urllib.request.Request(sys.argv[1], data=b"{}", method="POST")
try:
    print(urllib.request.urlopen(request, timeout=60).status)
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""


async def posted_by(uid: int, api: ApiExtension, host: str = "127.0.0.1") -> str:
    """The status and the error of a request by a process of another user."""
    import asyncio

    if os.getuid() != 0:
        pytest.skip("only root can run a process as another user")
    command = ["python3", "-I", "-S", "-c", _CLIENT, f"http://{host}:{api.address.port}/api/tasks"]  # type: ignore[union-attr]
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        user=uid,
        group=uid,
        extra_groups=[],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    )
    return str(done.stdout)


async def test_another_user_of_this_machine_starts_no_programs() -> None:
    async with running() as api:
        with api.serve("extensions::tasks", ROUTES):
            for host in ("127.0.0.1", "[::1]") if has_ipv6() else ("127.0.0.1",):
                answer = await posted_by(NOBODY, api, host)
                assert answer.startswith("403 ")
                assert "other users of this machine may use this only with credentials; set auth" in answer
            assert await posted_by(os.getuid(), api) == "200\n"


async def test_all_users_of_this_machine_may_be_let_in() -> None:
    async with running(allow_local_users=True) as api:
        with api.serve("extensions::tasks", ROUTES):
            assert await posted_by(NOBODY, api) == "200\n"


async def test_with_credentials_the_user_does_not_matter() -> None:
    async with running(extensions={"keeper": Keeper()}, auth={"authenticator": "keeper"}) as api:
        with api.serve("extensions::tasks", ROUTES):
            assert (await posted_by(NOBODY, api)).startswith("401 ")


@pytest.fixture(params=["127.0.0.1", "::1"])
def ends(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """The client's and the server's end of a connection."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    if family == socket.AF_INET6 and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    with socket.create_server((request.param, 0), family=family) as listener:
        client = socket.create_connection(listener.getsockname()[:2])
        server, _ = listener.accept()
        with client, server:
            yield client, server


def test_the_user_of_an_open_connection_is_known(ends: tuple[socket.socket, socket.socket]) -> None:
    client, server = ends
    assert user_of(server.getpeername()[:2], server.getsockname()[:2]) == os.geteuid()
    assert client.fileno() >= 0


def test_a_client_that_has_closed_its_socket_is_not_taken_for_root(ends: tuple[socket.socket, socket.socket]) -> None:
    client, server = ends
    names = server.getpeername()[:2], server.getsockname()[:2]
    client.close()
    assert user_of(*names) is None


def test_an_ipv4_client_of_a_server_on_all_ipv6_addresses_is_known() -> None:
    if not has_ipv6() or not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        client = socket.create_connection(("127.0.0.1", listener.getsockname()[1]))
        server, _ = listener.accept()
        with client, server:
            assert server.getpeername()[0] == "::ffff:127.0.0.1"
            assert user_of(server.getpeername()[:2], server.getsockname()[:2]) == os.geteuid()


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the kernel's list of sockets")
