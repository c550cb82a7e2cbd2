"""One job: its steps, its phases, its ranks, and the traces of its slow steps."""

from deploy.grafana.panels import Dashboard, Panel, Query, Row, Variable, by_quantile

_RANK = "rank {{zernel_rank}} {{instance}}"
_OF_JOB = 'job="$job"'
_OF_RANKS = 'job="$job", instance=~"$instance"'
_BY_RANK = "zernel_rank, instance"
_INTERVAL = "[$__rate_interval]"


def _rates(
    title: str, unit: str, metric: str, by: str, legend: str, description: str = "", *, stacked: bool = False
) -> Panel:
    """The rate of a counter, summed by some labels."""
    query = Query(f"sum by ({by}) (rate({metric}{{{_OF_RANKS}}}{_INTERVAL}))", legend)
    return Panel(title, unit, [query], description, stacked=stacked)


_STEPS = Row(
    "Steps",
    [
        Panel(
            "Step duration",
            "s",
            by_quantile(
                "zernel_step_duration_seconds", f'{_OF_RANKS}, zernel_step_kind="training"', "job", 0.5, 0.9, 0.99
            ),
            "The points are steps with a trace: a click opens it in Tempo.",
            exemplars=True,
        ),
        Panel(
            "Steps per second",
            "ops",
            [Query(f"avg by ({_BY_RANK}) (zernel_step_rate_per_second{{{_OF_RANKS}}})", _RANK)],
        ),
        Panel(
            "Jitter of steps",
            "percentunit",
            [Query(f"avg by ({_BY_RANK}) (zernel_step_jitter_ratio{{{_OF_RANKS}}})", _RANK)],
            "Standard deviation of the durations, as a share of their mean.",
        ),
        Panel(
            "Time by phase",
            "percentunit",
            [Query(f"avg by (zernel_phase) (zernel_phase_fraction_ratio{{{_OF_RANKS}}})", "{{zernel_phase}}")],
            "Mean shares of the chosen ranks.",
            stacked=True,
        ),
        _rates(
            "Time by evidence",
            "percentunit",
            "zernel_phase_detail_time_seconds_total",
            "zernel_phase, zernel_phase_detail",
            "{{zernel_phase}} / {{zernel_phase_detail}}",
            "Seconds per second, of all chosen ranks: forward, backward, loader, waits for other ranks.",
            stacked=True,
        ),
        Panel(
            "Steps by kind",
            "ops",
            [
                Query(
                    f"sum by (zernel_step_kind) (rate(zernel_steps_total{{{_OF_RANKS}}}{_INTERVAL}))",
                    "{{zernel_step_kind}}",
                )
            ],
        ),
    ],
)
_RANKS = Row(
    "Ranks",
    [
        Panel(
            "Verdict on the job",
            "short",
            [Query(f"max by (zernel_job_verdict) (zernel_job_verdict{{{_OF_JOB}}} == 1)")],
            kind="table",
            width=6,
        ),
        Panel(
            "Verdicts on ranks",
            "short",
            [Query(f"max by ({_BY_RANK}, zernel_verdict) (zernel_verdict{{{_OF_RANKS}}} == 1)")],
            kind="table",
            width=6,
        ),
        Panel(
            "What a step would save",
            "s",
            [
                Query(
                    "max by (zernel_cause, zernel_position, zernel_activity, zernel_rank) "
                    f"(zernel_cause_gain_seconds{{{_OF_JOB}}})",
                    "{{zernel_cause}} {{zernel_position}} {{zernel_activity}} {{zernel_rank}}",
                )
            ],
            "The time of a step that each cause costs. The first one gives the verdict.",
            width=12,
        ),
        Panel(
            "Lateness",
            "s",
            [Query(f"max by (zernel_rank) (zernel_job_rank_lateness_seconds{{{_OF_JOB}}})", "rank {{zernel_rank}}")],
            "How long the others wait for the rank in a mean step. The straggler is at the top.",
            width=12,
        ),
        Panel(
            "Critical path",
            "percentunit",
            [
                Query(
                    "sum by (zernel_rank, zernel_phase) "
                    f"(rate(zernel_step_critical_path_time_seconds_total{{{_OF_JOB}}}{_INTERVAL}))",
                    "rank {{zernel_rank}} {{zernel_phase}}",
                )
            ],
            "The rank and the phase that the job waited for. All shares together are the time of the job.",
            stacked=True,
            width=12,
        ),
        Panel(
            "Processes that failed",
            "short",
            [
                Query(
                    "sum by (host_name, zernel_rank, process_exit_code, process_signal) "
                    f'(zernel_process_ends_total{{{_OF_JOB}, process_exit_code!="0"}})'
                )
            ],
            kind="table",
            width=12,
            no_value="none",
        ),
    ],
)
_INPUT = Row(
    "Data, CUDA and memory",
    [
        Panel(
            "Waits for data",
            "s",
            by_quantile("zernel_dataloader_wait_seconds", _OF_RANKS, _BY_RANK, 0.99, legend=_RANK),
            "Time from the request for a batch to its arrival.",
        ),
        Panel(
            "Worker processes",
            "short",
            [Query(f"sum by ({_BY_RANK}) (zernel_dataloader_workers{{{_OF_RANKS}}})", _RANK)],
            "Processes of the DataLoader.",
        ),
        _rates("Bytes read by workers", "Bps", "zernel_dataloader_worker_read_size_bytes_total", _BY_RANK, _RANK),
        Panel(
            "Waits for the GPU",
            "s",
            by_quantile("zernel_cuda_sync_wait_seconds", _OF_RANKS, _BY_RANK, 0.99, legend=_RANK),
            "High values are often good: the GPU is the bottleneck.",
        ),
        Panel(
            "Launch latency",
            "s",
            by_quantile("zernel_cuda_launch_latency_seconds", _OF_RANKS, _BY_RANK, 0.99, legend=_RANK),
            "Time to put work into the queue of the GPU. High if the queue is full or the CPU is slow.",
        ),
        _rates(
            "Bytes copied",
            "Bps",
            "zernel_cuda_copy_size_bytes_total",
            "zernel_cuda_copy_kind",
            "{{zernel_cuda_copy_kind}}",
        ),
        Panel(
            "GPU memory allocated",
            "bytes",
            [
                Query(f"sum by ({_BY_RANK}) (zernel_cuda_memory_used_bytes{{{_OF_RANKS}}})", _RANK),
                Query(f"sum by ({_BY_RANK}) (zernel_cuda_memory_peak_bytes{{{_OF_RANKS}}})", f"peak of {_RANK}"),
            ],
            "By calls of CUDA since the collector attached.",
        ),
        _rates(
            "Energy by phase",
            "watt",
            "zernel_phase_energy_joules_total",
            "zernel_phase",
            "{{zernel_phase}}",
            "Joules per second. Energy in phases other than gpu_compute trains nothing.",
            stacked=True,
        ),
        _rates(
            "Starved GPU time",
            "percentunit",
            "zernel_gpu_starved_time_seconds_total",
            "zernel_position, zernel_activity",
            "{{zernel_position}}: {{zernel_activity}}",
            "Seconds per second, of all chosen ranks: the GPU certainly had nothing to do meanwhile.",
            stacked=True,
        ),
    ],
)
_TRACES = Row(
    "Traces",
    [
        Panel(
            "Steps of the job",
            "short",
            [
                Query(
                    '{ resource.service.name = "$job" && name =~ "job step|step" } '
                    "| select(span.zernel.step.critical_path.rank)"
                )
            ],
            "The slowest steps, and a sample of the others.",
            kind="traces",
            width=12,
        ),
        Panel(
            "Processes that failed",
            "short",
            [Query('{ resource.service.name = "$job" && name = "process" && status = error }')],
            kind="traces",
            width=12,
        ),
    ],
)
JOB = Dashboard(
    "otel-zernel-job",
    "otel-zernel / Job",
    "The steps and ranks of a training job.",
    [
        Variable("job", "Job", "zernel_phase_fraction_ratio", "job"),
        Variable("instance", "Process", 'zernel_phase_fraction_ratio{job="$job"}', "instance", several=True),
    ],
    [_STEPS, _RANKS, _INPUT, _TRACES],
)
