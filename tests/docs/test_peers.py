"""The page of real peers has the installed version of each, and its tests."""

import re

import pytest

from docs.catalogue import ROOT
from docs.peers import PEERS, Peer, files_of, page, version_of

INSTALLERS = ROOT / "tests" / "interop"


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_a_peer_has_a_version_and_every_glob_names_tests(peer: Peer) -> None:
    assert version_of(peer)
    assert len(list(files_of(peer))) >= len(peer.tests)


@pytest.mark.parametrize("script", ["install-kafka.sh", "install-otelcol.sh", "install-kubernetes.sh"])
def test_the_version_is_the_one_that_is_installed(script: str) -> None:
    (version,) = re.findall(r"^version=(.*)", (INSTALLERS / script).read_text("utf-8"), re.MULTILINE)
    assert f"| {version} |" in page()
