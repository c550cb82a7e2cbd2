"""One text that is not UTF-8, or one deep value, in a file costs no other point."""

import struct
from pathlib import Path

import pytest

from tests.receivers.damaged_texts import KINDS, damaged_json, damaged_metrics, every_point_arrives


@KINDS
@pytest.mark.parametrize("format_", ["json", "proto"])
async def test_every_point_arrives_everywhere(kind: str, format_: str, tmp_path: Path, unused_tcp_port: int) -> None:
    path = tmp_path / "recorded"
    encoded = damaged_metrics(kind)
    path.write_bytes(damaged_json(kind) + b"\n" if format_ == "json" else struct.pack(">i", len(encoded)) + encoded)
    await every_point_arrives(tmp_path, "otlp_json_file", {"include": [str(path)]}, unused_tcp_port, kind)
