"""Real training programs on unmodified frameworks, compared with their own logs.

    python -m tests.frameworks               # runs every program and writes docs/frameworks.md
    python -m tests.frameworks nanoGPT DDP   # runs two programs, and prints where they are wrong

Needs root, and the environment `.frameworks` that `tests/interop/install-frameworks.sh` makes with REQUIRE_PEERS=1.
"""
