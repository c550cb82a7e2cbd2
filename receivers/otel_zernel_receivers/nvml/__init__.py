"""Watches NVIDIA GPUs through NVML."""

from otel_zernel_receivers.nvml.receiver import NvmlReceiver as NvmlReceiver
