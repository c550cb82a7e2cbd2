"""The stand-in for CUDA, whose device is a thread."""

from tests.receivers.ebpf.standin.fixture import build_standin, standin

__all__ = ["build_standin", "standin"]
