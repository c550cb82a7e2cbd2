"""docs/deploy.md names every receiver, and the capabilities that `doctor` asks for."""

import re

from docs.catalogue import ROOT
from otel_zernel.registry import Registry
from otel_zernel_receivers.ebpf.doctor import _OPTIONAL, _REQUIRED

PAGE = (ROOT / "docs" / "deploy.md").read_text("utf-8")
RECEIVERS = re.findall(r"^\|.*", PAGE.partition("## What each receiver needs")[2].partition("\n## ")[0], re.MULTILINE)


def test_it_names_the_capabilities_of_ebpf() -> None:
    (row,) = (row for row in RECEIVERS if row.startswith("| [ebpf]"))
    assert set(re.findall(r"CAP_\w+", row)) == {capability.name for capability in _REQUIRED | _OPTIONAL}


def test_it_names_every_receiver() -> None:
    named = {name for row in RECEIVERS[2:] for name in re.findall(r"[a-z_]+", row.split("|")[1].partition("](")[0])}
    named |= {name for row in RECEIVERS for name in re.findall(r"`([a-z_]+)`", row.split("|")[1])}
    assert set(Registry.installed().aliases("receivers")) <= named
