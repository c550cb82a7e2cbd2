"""Reads a training from the batches of `phases`, `ebpf`, `nvml` and `csv`: phases, steps, jobs and GPUs."""
