"""The network of the cluster: a namespace with a link for each node, or all nodes on the loopback address."""

import os
import secrets
import shutil
import socket
import subprocess
from typing import Protocol

_BRIDGE = "zernel0"
_SUBNETS = [f"10.117.{number}" for number in range(256)]
"""Each cluster on this machine has one of these."""


class Network(Protocol):
    """Where the nodes are."""

    can_cut: bool
    """Whether a link can be cut."""

    def add(self, name: str) -> str:
        """The address of a new node."""

    def command(self, name: str) -> list[str]:
        """The words before a command that runs on a node."""

    def cut(self, name: str) -> None:
        """Takes the link of a node down."""

    def mend(self, name: str) -> None:
        """Takes it up again."""

    def close(self) -> None:
        """Removes everything."""


class Loopback:
    """All nodes on 127.0.0.1. No link can be cut."""

    can_cut = False

    def add(self, name: str) -> str:
        return "127.0.0.1"

    def command(self, name: str) -> list[str]:
        return []

    def cut(self, name: str) -> None:
        raise NotImplementedError(f"{name} has no link of its own")

    def mend(self, name: str) -> None:
        return

    def close(self) -> None:
        return


class Namespaces:
    """A network namespace for each node, connected by a bridge. Needs root and iproute2."""

    can_cut = True

    def __init__(self, prefix: str) -> None:
        """`prefix` makes the names of namespaces unique, in at most 5 characters."""
        self._bridge = f"{_BRIDGE}{prefix}"
        self._prefix = prefix
        self._names: list[str] = []
        self._subnet = _free_subnet()
        try:
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("address", "add", f"{self._subnet}.1/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            _ip("netns", "add", self._space("probe"))
            _ip("netns", "del", self._space("probe"))
        except BaseException:
            self.close()
            raise

    def add(self, name: str) -> str:
        self._names.append(name)
        number, space = len(self._names) + 1, self._space(name)
        outer, inner = self._link(name), f"{self._prefix}i{number}"
        _ip("netns", "add", space)
        _ip("link", "add", outer, "type", "veth", "peer", "name", inner)
        _ip("link", "set", inner, "netns", space)
        _ip("link", "set", outer, "master", self._bridge, "up")
        inside = ["-n", space]
        _ip(*inside, "address", "add", f"{self._subnet}.{number}/24", "dev", inner)
        _ip(*inside, "link", "set", "lo", "up")
        _ip(*inside, "link", "set", inner, "up")
        return f"{self._subnet}.{number}"

    def command(self, name: str) -> list[str]:
        return ["ip", "netns", "exec", self._space(name)]

    def cut(self, name: str) -> None:
        _ip("link", "set", self._link(name), "down")

    def mend(self, name: str) -> None:
        _ip("link", "set", self._link(name), "up")

    def close(self) -> None:
        for name in self._names:
            _ip("netns", "del", self._space(name), check=False)
        _ip("link", "del", self._bridge, check=False)
        self._names.clear()

    def _space(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def _link(self, name: str) -> str:
        return f"{self._prefix}o{self._names.index(name) + 2}"


def network() -> Network:
    """Namespaces if this machine allows them, else the loopback address."""
    if os.geteuid() == 0 and shutil.which("ip"):
        try:
            return Namespaces(f"z{secrets.token_hex(2)}")  # a former namespace may still end
        except subprocess.CalledProcessError:
            pass
    return Loopback()


def free_port() -> int:
    """A port that nobody uses at the moment."""
    with socket.socket() as one:
        one.bind(("", 0))
        port: int = one.getsockname()[1]
        return port


def _free_subnet() -> str:
    """A subnet that no link of this machine has. Raises `CalledProcessError` if all are taken."""
    taken = subprocess.run(["ip", "-4", "-o", "address"], check=True, capture_output=True, text=True).stdout  # noqa: S607
    free = (one for one in _SUBNETS if f" {one}." not in taken)
    if (found := next(free, None)) is None:
        raise subprocess.CalledProcessError(1, "ip address", stderr="all subnets are taken")
    return found


def _ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True)  # noqa: S603, S607  # words of this file
