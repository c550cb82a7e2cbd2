"""The page of real peers on the documentation site: `python -m docs.peers` prints it.

Versions are read from the files that start the peers, and what is checked from the tests.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_TESTS: Final = Path(__file__).parents[1] / "tests"
_HEAD: Final = """# Real peers

Tests meet the programs that users run beside the collector. `make peers` installs those that `make test` needs, and
`make soak` those that take long to build. Without a peer its tests are skipped, with a line that says what is missing;
with `REQUIRE_PEERS=1` they fail. A stand-in only plays faults that the real program cannot be made to have.
"""


class Peer(NamedTuple):
    """A program that tests start."""

    name: str
    starter: str
    """The file that starts it, below tests."""
    version: str
    """A regular expression with the version in its first group; empty if the system or PyPI decides."""
    target: str
    """The target of the Makefile that installs it."""
    tests: tuple[str, ...]
    """The files of its tests, as globs below tests."""


PEERS: Final = (
    Peer(
        "Apache Kafka",
        "interop/kafka/broker.py",
        r'_VERSION: Final = "(.*)"',
        "peers",
        (
            "exporters/kafka/test_apache_kafka.py",
            "receivers/kafka/test_apache_kafka.py",
            "interop/kafka/test_brokers.py",
        ),
    ),
    Peer(
        "Prometheus 3",
        "interop/install-go-peers.sh",
        r"common/version\.Version=([\d.]+)",
        "peers",
        ("interop/with_prometheus/sending/test_otlp.py", "interop/with_prometheus/sending/test_peers.py"),
    ),
    Peer(
        "Prometheus 2, promtool",
        "interop/prometheus.py",
        "",
        "peers",
        ("interop/with_prometheus/test_*.py", "deploy/test_prometheus.py", "deploy/grafana/test_queries.py"),
    ),
    Peer(
        "VictoriaMetrics",
        "interop/victoria_metrics.py",
        r'RELEASES = \("(.*)"\)',
        "peers",
        ("interop/with_prometheus/sending/test_victoria_metrics.py",),
    ),
    Peer("rotel", "interop/rotel.py", "", "peers", ("interop/test_rotel.py", "interop/test_phases.py")),
    Peer(
        "OpenTelemetry Collector",
        "interop/test_otelcol.py",
        r'_VERSION = "(.*)"',
        "soak",
        ("interop/test_otelcol.py",),
    ),
    Peer(
        "Kubernetes",
        "interop/kubernetes.py",
        r'_VERSION: Final = "(.*)"',
        "soak",
        ("interop/with_kubernetes/test_*.py",),
    ),
    Peer("PostgreSQL", "postgres.py", "", "peers", ("libraries/store/test_postgres_failures.py",)),
)


def page() -> str:
    """The document."""
    head = "| peer | version | installed by | tests | what they check |\n|---|---|---|---|---|\n"
    return _HEAD + "\n" + head + "".join(map(_row, PEERS))


def _row(peer: Peer) -> str:
    files = list(files_of(peer))
    count = sum(len(re.findall(r"^(?:async )?def test_", file.read_text("utf-8"), re.MULTILINE)) for file in files)
    checked = " ".join(_promise(file) for file in files)
    return f"| {peer.name} | {version_of(peer)} | `make {peer.target}` | {count} | {checked} |\n"


def version_of(peer: Peer) -> str:
    """The version that the tests start, or who decides."""
    if not peer.version:
        return "of the system"
    versions: set[str] = set(re.findall(peer.version, (_TESTS / peer.starter).read_text("utf-8")))
    (version,) = versions
    return version.replace('", "', ", ")


def files_of(peer: Peer) -> Iterator[Path]:
    """The files of its tests."""
    for pattern in peer.tests:
        yield from sorted(_TESTS.glob(pattern))


def _promise(file: Path) -> str:
    """The first sentence of a file of tests."""
    sentence = (ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "").partition("\n\n")[0].replace("\n", " ")
    return sentence.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
