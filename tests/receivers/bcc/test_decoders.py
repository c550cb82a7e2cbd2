"""Decoders give the values that users of ebpf_exporter know."""

import sys
from pathlib import Path
from typing import Any

import pytest

from otel_zernel_receivers.bcc.decoder_config import DecoderConfig, decoded
from otel_zernel_receivers.bcc.decoders import Skipped


def decode(decoders: list[Any], value: int | bytes) -> int | str:
    return decoded([DecoderConfig.model_validate(one) for one in decoders], value)


LOOPBACK = int.from_bytes(b"\x7f\0\0\1", sys.byteorder)
"""127.0.0.1 as struct sock has it: the bytes in network order."""


@pytest.mark.parametrize(
    ("decoders", "value", "expected"),
    [
        ([], 7, 7),
        ([], b"abc\0\0rest", "abc"),
        (["uint"], b"\1\0" if sys.byteorder == "little" else b"\0\1", 1),
        (["int"], b"\xff\xff\xff\xff", -1),
        (["pid"], 812, 812),
        (["comm"], b"python\0\0\0", "python"),
        (["string"], b"caf\xc3\xa9", "café"),
        (["string"], b"\xff", "�"),
        (["hex"], 255, "0xff"),
        (["hex"], b"\1\xab", "01ab"),
        (["inet_ip"], LOOPBACK, "127.0.0.1"),
        (["inet_ip"], b"\x0a\0\0\7", "10.0.0.7"),
        (["inet_ip"], bytes(15) + b"\1", "::1"),
        (["errno"], 2, "ENOENT"),
        (["errno"], -11, "EAGAIN"),
        (["errno"], 0, "OK"),
        (["errno"], 9999, "unknown:9999"),
        (["ifname"], 1, "lo"),
        (["ifname"], 99_999, "unknown:99999"),
        (["majorminor"], 4095 << 20 | 77, "4095:77"),
        ([{"name": "static_map", "static_map": {1: "read", 2: "write"}}], 2, "write"),
        ([{"name": "static_map", "static_map": {1: "read"}}], 3, "unknown:3"),
        (["string", {"name": "static_map", "static_map": {"R": "read"}}], b"R\0\0", "read"),
        ([{"name": "regexp", "regexps": ["^py", "^ruby"]}], b"python\0", "python"),
    ],
)
def test_a_field_becomes_the_value_of_an_attribute(
    decoders: list[Any], value: int | bytes, expected: int | str
) -> None:
    assert decode(decoders, value) == expected


def test_an_entry_that_no_regexp_matches_is_left_out() -> None:
    with pytest.raises(Skipped):
        decode([{"name": "regexp", "regexps": ["^py"]}], b"perl\0")


@pytest.mark.skipif(not any(Path("/sys/dev/block").glob("*")), reason="this machine has no block device")
def test_a_device_number_becomes_the_name_of_the_device() -> None:
    link = next(Path("/sys/dev/block").glob("*"))
    major, minor = map(int, link.name.split(":"))
    assert decode(["majorminor"], major << 20 | minor) == link.readlink().name
