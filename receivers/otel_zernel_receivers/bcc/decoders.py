"""Decoders: from a field of a table's key to the value of an attribute. Names and meaning are those of ebpf_exporter.

A decoder gets an integer, or bytes, or the text of the decoder before it.
"""

import errno
import re
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path

Raw = int | bytes | str
"""What a decoder gets. Bytes are those of an array in C."""
_MINOR_BITS = 20


class Skipped(Exception):
    """An entry whose label no `regexp` matches: it is left out."""


def text(value: Raw) -> str:
    """Bytes up to the first NUL, as in C."""
    return value.partition(b"\0")[0].decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _number(value: Raw) -> int:
    return int.from_bytes(value, sys.byteorder) if isinstance(value, bytes) else int(value)


def _signed(value: Raw) -> int:
    return int.from_bytes(value, sys.byteorder, signed=True) if isinstance(value, bytes) else int(value)


def _hex(value: Raw) -> str:
    return value.hex() if isinstance(value, bytes) else f"{int(value):#x}"


def _address(value: Raw) -> str:
    """An IPv4 address as the kernel keeps it in an integer, or the 4 or 16 bytes of any."""
    raw = value if isinstance(value, bytes) else (_number(value) & 0xFFFFFFFF).to_bytes(4, sys.byteorder)
    return str(ip_address(raw)) if len(raw) in (4, 16) else raw.hex()


def _error(value: Raw) -> str:
    """`ENOENT` for 2 and for -2."""
    number = abs(_signed(value))
    return errno.errorcode.get(number, f"unknown:{number}") if number else "OK"


def _interface(value: Raw) -> str:
    try:
        return socket.if_indextoname(_number(value))
    except OSError:
        return f"unknown:{_number(value)}"


def _device(value: Raw) -> str:
    """The name of a block device by the kernel's dev_t: `nvme0n1`."""
    number = _number(value)
    numbers = f"{number >> _MINOR_BITS}:{number & (1 << _MINOR_BITS) - 1}"
    try:
        return Path(f"/sys/dev/block/{numbers}").readlink().name
    except OSError:
        return numbers


def mapped(texts: Mapping[str | int, str], value: Raw) -> str:
    """The text of the value, which a configuration may write as a number or as a text."""
    by_text = {str(key): text for key, text in texts.items()}
    given = text(value)
    return by_text.get(given, f"unknown:{given}")


def matched(regexps: Sequence[str], value: Raw) -> str:
    """The value as text. Raises `Skipped` if no expression is found in it."""
    given = text(value)
    if not any(re.search(regexp, given) for regexp in regexps):
        raise Skipped
    return given


BY_NAME: Mapping[str, Callable[[Raw], int | str]] = {
    "uint": _number,
    "int": _signed,
    "pid": _number,
    "string": text,
    "comm": text,
    "hex": _hex,
    "inet_ip": _address,
    "errno": _error,
    "ifname": _interface,
    "majorminor": _device,
    "ksym": text,
    "syscall": text,
}
"""The decoders without options."""
