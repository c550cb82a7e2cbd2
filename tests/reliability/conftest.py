"""Fixtures of the tests of reliability."""

from tests.receivers.ebpf.standin.fixture import build_standin, standin

__all__ = ["build_standin", "standin"]
