"""TCP ports of localhost for programs that need a number in their configuration."""

import random
import socket
from collections.abc import Iterator

RANGE = range(12_000, 32_000)
"""Below /proc/sys/net/ipv4/ip_local_port_range: the kernel gives none of these to a connection, or for port 0."""


def _free_ports() -> Iterator[int]:
    """Each port once, in random order, as another test run may do the same."""
    # Tests seed the shared generator: two runs would get the same ports.
    for port in random.SystemRandom().sample(RANGE, len(RANGE)):
        with socket.socket() as free:
            try:
                free.bind(("127.0.0.1", port))
            except OSError:
                continue
        yield port


_ports = _free_ports()


def free_port() -> int:
    """A port that nobody uses, and that this function has not returned before."""
    return next(_ports)
