"""Fixtures for all tests of the ebpf receiver."""

from tests.receivers.ebpf.jobs.pytorch.torches import python
from tests.receivers.ebpf.standin.fixture import build_standin, standin
from tests.receivers.ebpf.watching import fresh_watch, loadable, mode, own_programs, shared_watch, watch

__all__ = [
    "build_standin",
    "fresh_watch",
    "loadable",
    "mode",
    "own_programs",
    "python",
    "shared_watch",
    "standin",
    "watch",
]
