"""The receiver's tests that run on every kernel."""

_FOLDER = "tests/receivers/ebpf"

SHORT = tuple(
    f"{_FOLDER}/{test}"
    for test in (
        "test_modes.py",
        "test_scope_nesting.py",
        "test_launches.py::test_every_launch_of_every_thread_is_counted",
        "test_nccl.py::test_a_collective_is_counted_with_its_bytes[ncclAllReduce-all_reduce-1]",
        "test_lifecycle.py::test_the_last_counts_of_a_process_are_read_after_its_end",
        "test_lifecycle.py::test_a_killed_process_gives_everything_back",
        "test_collector.py::test_a_killed_collector_leaves_nothing_behind_and_may_come_back",
        "test_collector.py::test_few_capabilities_suffice",
    )
)
"""What `make test` runs on one kernel of each architecture: a minute or two of an emulator."""

FULL = tuple(
    f"{_FOLDER}/test_{subject}.py"
    for subject in (
        "modes",
        "scope_nesting",
        "launches",
        "cuda",  # calls inside calls, memory, devices
        "nccl",
        "series",
        "lifecycle",
        "endings",
        "events",  # the ring
        "scheduling",
        "sampling",
        "collector",  # kill -9, capabilities
    )
)
"""What `make kernels` runs: ten minutes of an emulator, an hour on a busy machine."""
