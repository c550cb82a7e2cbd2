"""Runs the ebpf receiver on other kernels: Debian's, booted in an emulator.

    python -m tests.kernels              # boots every kernel of the catalogue and writes docs/kernels.md
    python -m tests.kernels 6.1-x86_64   # boots one kernel

An x86-64 kernel sees this machine's own files, read-only. An arm64 kernel sees an arm64 tree, which `debian` makes.
Inside the emulator, `tests.kernels.guest` loads every variant of the BPF objects and runs the receiver's tests. The
kernels behave as on real machines, but durations measured in an emulator mean nothing. A machine that stands still is
booted again (see `emulator`). Tests that fail are not repeated.

Downloaded packages and the arm64 tree are kept in `~/.cache/otel-zernel/kernels`, or in the folder that the variable
ZERNEL_KERNELS names.
"""
