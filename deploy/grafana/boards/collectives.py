"""The collectives of one job: their durations and bytes, the waits for other ranks, and the links below."""

from deploy.grafana.panels import Dashboard, Panel, Query, Row, Variable, by_quantile

_OF_JOB = 'job="$job"'
_INTERVAL = "[$__rate_interval]"
_DURATION = "zernel_nccl_collective_duration_seconds"
_OPERATION = "zernel_nccl_operation"
_ON_HOSTS = 'and on (host_name) zernel_phase_fraction_ratio{job="$job"}'


def _of_histogram(part: str, numerator: str = "") -> list[Query]:
    """The rate of the count or the sum of the durations; with a numerator, what it is divided by."""
    classic = f"sum by ({_OPERATION}) (rate({_DURATION}_{part}{{{_OF_JOB}}}{_INTERVAL}))"
    native = f"sum by ({_OPERATION}) (histogram_{part}(rate({_DURATION}{{{_OF_JOB}}}{_INTERVAL})))"
    legend = "{{zernel_nccl_operation}}"
    return [
        Query(f"{numerator}{classic}", legend, "classic"),
        Query(f"{numerator}({native} unless {classic})", legend, "native"),  # a server may have both
    ]


_BYTES = f"sum by ({_OPERATION}) (rate(zernel_nccl_collective_size_bytes_total{{{_OF_JOB}}}{_INTERVAL}))"
_CALLS = Row(
    "Collectives",
    [
        Panel(
            "Duration",
            "s",
            by_quantile(_DURATION, _OF_JOB, _OPERATION, 0.5, 0.99, legend="{{zernel_nccl_operation}}"),
            "An upper bound: to the end of the next wait for the GPU.",
        ),
        Panel(
            "Time to enqueue",
            "s",
            by_quantile(
                "zernel_nccl_collective_enqueue_duration_seconds",
                _OF_JOB,
                _OPERATION,
                0.5,
                0.99,
                legend="{{zernel_nccl_operation}}",
            ),
            "The duration of the call on the host.",
        ),
        Panel("Collectives per second", "ops", _of_histogram("count")),
        Panel("Bytes per second", "Bps", [Query(_BYTES, "{{zernel_nccl_operation}}")], "Of all ranks."),
        Panel(
            "Bandwidth of a collective",
            "Bps",
            _of_histogram("sum", f"{_BYTES} / "),
            "Bytes by duration, a lower bound. It includes the wait for the last rank.",
        ),
        Panel(
            "Errors",
            "ops",
            [Query(f"sum by (error_type) (rate(zernel_nccl_errors_total{{{_OF_JOB}}}{_INTERVAL}))", "{{error_type}}")],
            "Calls of NCCL that failed.",
            no_value="0",
        ),
    ],
)
_WAITS = Row(
    "Waits for other ranks",
    [
        Panel(
            "Share of time in waits",
            "percentunit",
            [
                Query(
                    f'avg by (zernel_rank) (zernel_phase_fraction_ratio{{{_OF_JOB}, zernel_phase="nccl_collective"}})',
                    "rank {{zernel_rank}}",
                )
            ],
            "The straggler has the smallest share: the others wait for it.",
        ),
        Panel(
            "Lateness",
            "s",
            [Query(f"max by (zernel_rank) (zernel_job_rank_lateness_seconds{{{_OF_JOB}}})", "rank {{zernel_rank}}")],
            "How long the others wait for the rank in a mean step.",
        ),
        Panel(
            "Transfer",
            "s",
            [
                Query(f"max(zernel_job_collective_transfer_seconds{{{_OF_JOB}}})", "transfer"),
                Query(f"max(zernel_job_step_duration_seconds{{{_OF_JOB}}})", "step"),
            ],
            "The shortest wait of any rank in a mean step. If it is long, the links are slow.",
        ),
        Panel(
            "Overlap with computation",
            "percentunit",
            [
                Query(
                    f"avg by (zernel_rank) (rate(zernel_collective_overlap_seconds_total{{{_OF_JOB}}}{_INTERVAL}))",
                    "rank {{zernel_rank}}",
                )
            ],
            "Time of collectives in flight beside other work: hidden communication.",
        ),
    ],
)
_LINKS = Row(
    "Links of the hosts of the job",
    [
        Panel(
            "NVLink",
            "Bps",
            [
                Query(
                    "sum by (host_name, network_io_direction) "
                    f"(zernel_gpu_nvlink_throughput_bytes_per_second {_ON_HOSTS})",
                    "{{host_name}} {{network_io_direction}}",
                )
            ],
        ),
        Panel(
            "PCIe",
            "Bps",
            [
                Query(
                    "sum by (host_name, network_io_direction) "
                    f"(zernel_gpu_pcie_throughput_bytes_per_second {_ON_HOSTS})",
                    "{{host_name}} {{network_io_direction}}",
                )
            ],
        ),
        Panel(
            "Network of the hosts",
            "Bps",
            [
                Query(
                    "sum by (host_name, network_io_direction) "
                    f"(rate(system_network_io_bytes_total{_INTERVAL}) {_ON_HOSTS})",
                    "{{host_name}} {{network_io_direction}}",
                )
            ],
            "From the receiver host. It does not see RDMA.",
        ),
        Panel(
            "NVLink links that are inactive",
            "short",
            [
                Query(
                    "sum by (host_name, zernel_gpu_index) "
                    f'(zernel_gpu_nvlink_links{{zernel_gpu_nvlink_state="inactive"}} {_ON_HOSTS})',
                    "{{host_name}} GPU {{zernel_gpu_index}}",
                )
            ],
        ),
        Panel(
            "NVLink errors",
            "short",
            [
                Query(
                    f"sum by (host_name, zernel_gpu_index, error_type) (zernel_gpu_nvlink_errors_total {_ON_HOSTS})",
                    "{{host_name}} GPU {{zernel_gpu_index}} {{error_type}}",
                )
            ],
            "Since the driver was loaded.",
        ),
    ],
)
COLLECTIVES = Dashboard(
    "otel-zernel-collectives",
    "otel-zernel / Collectives",
    "NCCL, and the waits of the ranks of a job for each other.",
    [Variable("job", "Job", "zernel_job_verdict", "job")],
    [_CALLS, _WAITS, _LINKS],
)
