"""The stand-ins for CUDA and NCCL."""

from tests.receivers.ebpf.standin.fixture import build_standin, standin

__all__ = ["build_standin", "standin"]
