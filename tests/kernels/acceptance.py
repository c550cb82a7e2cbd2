"""The receiver's tests that run on each kernel."""

_FOLDER = "tests/receivers/ebpf"

SHORT = tuple(
    f"{_FOLDER}/{test}"
    for test in (
        "probes/test_modes.py::test_in_every_mode_the_kernel_accepts_every_program_and_every_call_is_counted",
        "jobs/test_launches.py::test_every_launch_of_every_thread_is_counted",
        "jobs/test_nccl.py::test_a_collective_is_counted_with_its_bytes[ncclAllReduce-all_reduce-1]",
        "tables/test_lifecycle.py::test_the_last_counts_of_a_process_are_read_after_its_end",
        "tables/test_lifecycle.py::test_a_killed_process_gives_everything_back",
        "test_collector.py::test_a_killed_collector_leaves_nothing_behind_and_may_come_back",
        "test_collector.py::test_few_capabilities_suffice_for_counts_and_samples",
    )
)
"""`make test` runs these on one kernel: one or two minutes in an emulator."""

FULL = tuple(
    f"{_FOLDER}/{test}"
    for test in (
        "probes/test_modes.py",
        "jobs/test_scope_nesting.py",
        "jobs/test_operators.py::test_runs_are_the_same_in_every_mode",
        "jobs/test_operators.py::test_the_closure_of_an_optimizer_is_a_run_and_computes",
        "jobs/test_operators.py::test_the_gap_shows_bytes_and_copies",
        "jobs/test_operators.py::test_the_gap_shows_page_faults_on_files",
        "jobs/test_operators.py::test_new_memory_is_no_page_fault_on_a_file",
        "jobs/test_launches.py",
        "jobs/test_cuda.py",  # calls inside calls, memory, devices
        "jobs/test_nccl.py",
        "tables/test_series.py",
        "tables/test_lifecycle.py",
        "tables/test_probed_files.py",
        "emit/test_endings.py",
        "emit/test_events.py",  # the ring buffer
        "jobs/test_scheduling.py",
        "budget/test_sampling.py",
        "sampler/test_samples.py::test_the_python_frames_of_a_thread_are_found",
        "sampler/test_samples.py::test_the_python_frames_of_waits_are_found",
        "sampler/test_runtimes.py::test_the_size_of_a_pthread_is_found_in_the_c_library",
        "hangs/test_processes.py::test_a_thread_has_its_frames_with_lines_in_each_version_of_python",
        "hangs/test_processes.py::test_the_thread_that_holds_the_gil_in_c_is_named",
        # arm64: bti and paciasp
        "processes/test_containers.py::test_launches_are_probed_if_probes_are_cheap_or_never_are",
        "test_collector.py",  # kill -9, capabilities
    )
)
"""`make kernels` runs these: ten minutes in an emulator, an hour on a busy machine."""
