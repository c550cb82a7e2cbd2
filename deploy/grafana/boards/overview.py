"""All jobs and all GPUs: what trains, what idles, what fails."""

from deploy.grafana.panels import Dashboard, Panel, Query, Row, by_quantile, meaning_of

_UTILIZATION = 'hw_gpu_utilization_ratio{hw_gpu_task="general"}'
_HOST = "{{host_name}}"
_GPU = "{{host_name}} GPU {{zernel_gpu_index}}"


def _stat(title: str, expression: str, unit: str = "short", description: str = "") -> Panel:
    return Panel(title, unit, [Query(expression)], description, kind="stat", width=4)


_NUMBERS = Row(
    "Now",
    [
        _stat("Jobs", "count(count by (job) (zernel_phase_fraction_ratio))", description="Jobs that train."),
        _stat("Ranks", "count(count by (job, instance) (zernel_phase_fraction_ratio))"),
        _stat("GPUs", f"count({_UTILIZATION})"),
        _stat(
            "Busy GPUs", f"count({_UTILIZATION} > 0.05) or vector(0)", description="With kernels in over 5 % of time."
        ),
        _stat("Mean utilization", f"avg({_UTILIZATION})", "percentunit"),
        _stat("Power of all GPUs", "sum(hw_power_watts)", "watt"),
    ],
)
_JOBS = Row(
    "Jobs",
    [
        Panel(
            "Verdicts on jobs",
            "short",
            [Query("max by (job, zernel_job_verdict) (zernel_job_verdict == 1)")],
            meaning_of("straggler", "slow_link"),
            kind="table",
        ),
        Panel(
            "Verdicts on ranks",
            "short",
            [Query("sum by (job, zernel_verdict) (zernel_verdict == 1)")],
            f"The number of ranks with each verdict. {meaning_of('input_bound')}",
            kind="table",
        ),
        Panel(
            "Ranks that died",
            "short",
            [
                Query(
                    "sum by (job, host_name, zernel_rank, process_exit_code, process_signal) "
                    '(zernel_process_ends_total{process_exit_code!="0"})'
                )
            ],
            "Processes that a signal killed, or that ended with an exit code other than 0.",
            kind="table",
            no_value="none",
        ),
        Panel(
            "Steps per second",
            "ops",
            [Query("avg by (job) (zernel_step_rate_per_second)", "{{job}}")],
            "Mean over the ranks of a job.",
        ),
        Panel(
            "Step duration",
            "s",
            by_quantile(
                "zernel_step_duration_seconds", 'zernel_step_kind="training"', "job", 0.5, 0.99, legend="{{job}}"
            ),
        ),
        Panel(
            "Time of the job by phase",
            "percentunit",
            [Query("avg by (zernel_phase) (zernel_phase_fraction_ratio)", "{{zernel_phase}}")],
            "Mean shares of all ranks of all jobs.",
            stacked=True,
        ),
    ],
)
_GPUS = Row(
    "GPUs",
    [
        Panel("Utilization", "percentunit", [Query(f"avg by (host_name) ({_UTILIZATION})", _HOST)]),
        Panel(
            "SM activity",
            "percentunit",
            [Query('avg by (host_name) (zernel_gpu_engine_active_ratio{zernel_gpu_engine="sm"})', _HOST)],
            "From the profiler (GPM, Hopper and newer). Utilization counts a GPU as busy if one SM works.",
        ),
        Panel("Power", "watt", [Query("sum by (host_name) (hw_power_watts)", _HOST)], stacked=True),
        Panel("Memory in use", "bytes", [Query("sum by (host_name) (hw_gpu_memory_usage_bytes)", _HOST)], stacked=True),
        Panel(
            "Hottest GPU",
            "celsius",
            [Query('max by (host_name) (hw_temperature_celsius{hw_sensor_location="gpu"})', _HOST)],
        ),
        Panel(
            "Reduced clocks",
            "short",
            [
                Query(
                    "sum by (zernel_gpu_throttle_reason) "
                    '(zernel_gpu_throttle_active{zernel_gpu_throttle_reason!~"idle|application_clocks"})',
                    "{{zernel_gpu_throttle_reason}}",
                )
            ],
            "The number of GPUs whose clocks are reduced, by reason. sw_power_cap is usual under full load.",
        ),
        Panel("GPUs by state", "short", [Query("sum by (hw_state) (hw_status)", "{{hw_state}}")], stacked=True),
        Panel(
            "XID errors",
            "short",
            [
                Query(
                    "sum by (host_name, zernel_gpu_index, zernel_gpu_xid_code) (zernel_gpu_xid_errors_total)",
                    _GPU + ": XID {{zernel_gpu_xid_code}}",
                )
            ],
            "Since the start of the collector, by code.",
            no_value="0",
        ),
        Panel(
            "Uncorrected ECC errors",
            "short",
            [
                Query(
                    'sum by (host_name, zernel_gpu_index) (hw_errors_total{error_type="uncorrected"})',
                    _GPU,
                )
            ],
            "Since the driver was loaded.",
        ),
    ],
)
OVERVIEW = Dashboard(
    "otel-zernel-overview",
    "otel-zernel / Cluster",
    "All training jobs and all GPUs.",
    [],
    [_NUMBERS, _JOBS, _GPUS],
)
