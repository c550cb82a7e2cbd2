"""A simulated training job of 8 ranks, as the receivers `ebpf` and `nvml` report one."""
