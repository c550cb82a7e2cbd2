"""The stand-in for CUDA, whose device is a thread."""

from tests.receivers.ebpf.standin.fixture import build_standin as build_standin
from tests.receivers.ebpf.standin.fixture import standin as standin
