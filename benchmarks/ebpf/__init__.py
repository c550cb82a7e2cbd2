"""The cost of the eBPF receiver."""
