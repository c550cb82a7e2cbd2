"""Fixtures for all tests of the ebpf receiver."""

from tests.receivers.ebpf.jobs.pytorch.torches import python as python
from tests.receivers.ebpf.standin.fixture import build_standin as build_standin
from tests.receivers.ebpf.standin.fixture import standin as standin
from tests.receivers.ebpf.watching import fresh_watch as fresh_watch
from tests.receivers.ebpf.watching import loadable as loadable
from tests.receivers.ebpf.watching import mode as mode
from tests.receivers.ebpf.watching import own_programs as own_programs
from tests.receivers.ebpf.watching import shared_watch as shared_watch
from tests.receivers.ebpf.watching import watch as watch
