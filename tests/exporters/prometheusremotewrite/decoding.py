"""Decodes requests of remote write by the messages of the specification, and checks its rules."""

import importlib.resources
import struct
import tempfile
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import cramjam
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from grpc_tools import protoc

HERE = Path(__file__).parent
STALE_BITS = 0x7FF0000000000002


@cache
def messages() -> tuple[Any, Any]:
    """The classes `prometheus.WriteRequest` and `io.prometheus.write.v2.Request`."""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/messages"
        include = importlib.resources.files("grpc_tools") / "_proto"
        arguments = ["protoc", f"-I{HERE}", f"-I{include}", f"--descriptor_set_out={out}"]
        assert protoc.main([*arguments, "remote_v1.proto", "remote_v2.proto"]) == 0
        found = FileDescriptorSet.FromString(Path(out).read_bytes())
    pool = DescriptorPool()
    for file in found.file:
        pool.Add(file)
    names = "prometheus.WriteRequest", "io.prometheus.write.v2.Request"
    first, second = (GetMessageClass(pool.FindMessageTypeByName(name)) for name in names)
    return first, second


Labels = tuple[tuple[str, str], ...]


@dataclass
class Decoded:
    """A request of either version in the same form."""

    samples: dict[Labels, list[tuple[int, float]]] = field(default_factory=dict)
    """Time in ms and value."""
    starts: dict[Labels, list[int]] = field(default_factory=dict)
    histograms: dict[Labels, list[Any]] = field(default_factory=dict)
    exemplars: dict[Labels, list[tuple[int, float, Labels]]] = field(default_factory=dict)
    metadata: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    """Type, help and unit, by family (1.0) or by the name of the series (2.0)."""

    @property
    def counts(self) -> tuple[int, int, int]:
        parts = (self.samples, self.histograms, self.exemplars)
        samples, histograms, exemplars = (sum(map(len, part.values())) for part in parts)
        return samples, histograms, exemplars


def name_of(labels: Labels) -> str:
    return dict(labels)["__name__"]


def is_stale(value: float) -> bool:
    bits: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    return bits == STALE_BITS


def decoded_v1(body: bytes) -> Decoded:
    """A request of 1.0, without its compression. Fails if it breaks a rule."""
    request = messages()[0].FromString(body)
    check_fields(request)
    found = Decoded()
    for timesery in request.timeseries:
        labels = checked(tuple((label.name, label.value) for label in timesery.labels))
        exemplars = [
            (exemplar.timestamp, exemplar.value, tuple((label.name, label.value) for label in exemplar.labels))
            for exemplar in timesery.exemplars
        ]
        take(found, labels, timesery, exemplars)
    for one in request.metadata:
        found.metadata[one.metric_family_name] = one.type, one.help, one.unit
    return found


def decoded_v2(body: bytes) -> Decoded:
    """A request of 2.0, without its compression. Fails if it breaks a rule."""
    request = messages()[1].FromString(body)
    check_fields(request)
    symbols = list(request.symbols)
    assert symbols[0] == ""
    assert len(set(symbols)) == len(symbols)
    found = Decoded()
    for timesery in request.timeseries:
        labels = checked(pairs(timesery.labels_refs, symbols))
        exemplars = [
            (exemplar.timestamp, exemplar.value, pairs(exemplar.labels_refs, symbols))
            for exemplar in timesery.exemplars
        ]
        take(found, labels, timesery, exemplars)
        found.starts[labels] = [sample.start_timestamp for sample in (*timesery.samples, *timesery.histograms)]
        metadata = timesery.metadata
        assert timesery.HasField("metadata")
        assert metadata.type
        found.metadata[name_of(labels)] = metadata.type, symbols[metadata.help_ref], symbols[metadata.unit_ref]
    return found


def check_fields(message: Any) -> None:
    assert len(UnknownFieldSet(message)) == 0, "every field is one of the specification"
    for described, value in message.ListFields():
        if described.type == described.TYPE_MESSAGE:
            for one in value if described.is_repeated else (value,):
                check_fields(one)


def pairs(refs: Any, symbols: list[str]) -> Labels:
    assert len(refs) % 2 == 0
    return tuple((symbols[name], symbols[value]) for name, value in zip(refs[::2], refs[1::2], strict=True))


def checked(labels: Labels) -> Labels:
    names = [name for name, _ in labels]
    assert names == sorted(set(names), key=str.encode), "labels are sorted, each once"
    assert all(name and value for name, value in labels), "no label is empty"
    assert "__name__" in names
    return labels


def take(found: Decoded, labels: Labels, one: Any, exemplars: list[tuple[int, float, Labels]]) -> None:
    assert bool(one.samples) != bool(one.histograms), "a series has either samples or histograms"
    assert labels not in found.samples, "a series is in a request once"
    assert labels not in found.histograms, "a series is in a request once"
    times = [sample.timestamp for sample in (*one.samples, *one.histograms)]
    assert all(times)
    assert all(before < after for before, after in pairwise(times)), "the samples of a series are in order"
    if one.samples:
        found.samples[labels] = [(sample.timestamp, sample.value) for sample in one.samples]
    else:
        found.histograms[labels] = list(one.histograms)
        for histogram in one.histograms:
            check_histogram(histogram)
    if exemplars:
        assert all(time for time, _, _ in exemplars)
        assert exemplars == sorted(exemplars, key=lambda exemplar: exemplar[0])
        found.exemplars[labels] = exemplars


def check_histogram(histogram: Any) -> None:
    assert histogram.WhichOneof("count") == "count_int"
    assert -4 <= histogram.schema <= 8 or histogram.schema == -53
    counts = []
    for side in ("positive", "negative"):
        spans, deltas = getattr(histogram, f"{side}_spans"), getattr(histogram, f"{side}_deltas")
        assert sum(span.length for span in spans) == len(deltas)
        assert all(span.offset >= 0 for span in spans[1:])
        total = 0
        for delta in deltas:
            total += delta
            assert total >= 0
            counts.append(total)
    if not is_stale(histogram.sum):
        assert sum(counts) + histogram.zero_count_int == histogram.count_int


def decompressed(body: bytes) -> bytes:
    assert cramjam.snappy.decompress_raw_len(body) < 32 << 20
    return bytes(cramjam.snappy.decompress_raw(body))
