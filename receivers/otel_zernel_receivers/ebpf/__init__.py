"""The ebpf receiver: counts the CUDA, NCCL and PyTorch calls of running processes in the kernel."""

from otel_zernel_receivers.ebpf.receiver import EbpfReceiver as EbpfReceiver
