"""CUDA, NCCL and PyTorch in running processes, seen from the kernel and counted there."""

from otel_zernel_receivers.ebpf.receiver import EbpfReceiver

__all__ = ["EbpfReceiver"]
