"""A node, its kubelet, and its processes."""

from pathlib import Path

import pytest

from tests.processors.kubernetes.gpus.kubelet import FakeKubelet
from tests.processors.kubernetes.node import Node
from tests.processors.kubernetes.tree import ProcTree


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """Its watches soon try again."""
    monkeypatch.setattr("otel_zernel_libraries.clients.kubernetes.collection._SHORTEST_WAIT", 0.05)
    return Node(tmp_path)


@pytest.fixture
def kubelet(tmp_path: Path) -> FakeKubelet:
    return FakeKubelet(tmp_path)


@pytest.fixture
def tree(tmp_path: Path) -> ProcTree:
    return ProcTree(tmp_path / "proc")
