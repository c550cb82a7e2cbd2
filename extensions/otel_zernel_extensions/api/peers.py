"""The user of this machine who has opened a connection over the loopback interface."""

import ipaddress
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))


def user_of(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The uid of the client's end of an open connection. None if it is unknown. Blocks.

    The kernel lists every socket of a network namespace with the user of the process that has made it (proc(5)).
    """
    ends = [f" {local} {remote} " for local, remote in zip(_ends(*client), _ends(*server), strict=True)]
    for table in _TABLES:
        try:
            text = table.read_text("ascii")
        except OSError:
            continue
        for end in ends:
            if (at := text.find(end)) >= 0:
                return _uid(text[at:].partition("\n")[0].split())
    return None


def _uid(fields: list[str]) -> int | None:
    """`fields` begins with the local address. A socket that its process has closed has no inode, and uid 0."""
    uid, inode = int(fields[6]), int(fields[8])
    return uid if inode else None


def _ends(host: str, port: int) -> Iterator[str]:
    """An end of a connection as in the two tables, for IPv4 also as the IPv6 address that stands for it."""
    address = ipaddress.ip_address(host)
    plain = address if isinstance(address, ipaddress.IPv4Address) else address.ipv4_mapped
    if plain:
        yield f"{_words(plain.packed)}:{port:04X}"
        address = ipaddress.IPv6Address(f"::ffff:{plain}")
    yield f"{_words(address.packed)}:{port:04X}"


def _words(address: bytes) -> str:
    """Words of 32 bits, each a number in the byte order of the machine."""
    words = (address[at : at + 4] for at in range(0, len(address), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
