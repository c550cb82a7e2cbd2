"""The ebpf receiver on other kernels: Debian's, booted by an emulator.

    python -m tests.kernels              # boots every kernel of the catalogue and writes docs/kernels.md
    python -m tests.kernels 6.1-x86_64   # boots some

A kernel runs with this machine's own files, read only; an arm64 kernel with an arm64 tree that `arm64_root` makes.
Inside runs `tests.kernels.guest`: it loads every variant of the BPF objects and runs the receiver's tests. Times of an
emulator mean nothing, but its kernels count as real ones do.

What is downloaded or made is kept in `~/.cache/otel-zernel/kernels`, or in the folder that ZERNEL_KERNELS names.
"""
