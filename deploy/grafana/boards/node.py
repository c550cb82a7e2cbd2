"""The GPUs of one host: load by the profiler (GPM), memory, power, clocks, links and errors."""

from deploy.grafana.panels import Dashboard, Panel, Query, Row, Variable

_GPU = "GPU {{zernel_gpu_index}}"
_CHOSEN = 'host_name="$host", zernel_gpu_index=~"$gpu"'
_BY_GPU = "zernel_gpu_index, hw_id"
_INTERVAL = "[$__rate_interval]"


def _gauge(title: str, unit: str, metric: str, more: str = "", description: str = "", width: int = 8) -> Panel:
    """The gauge of each GPU. `more` is added to the selector."""
    selector = f"{_CHOSEN}, {more}" if more else _CHOSEN
    return Panel(title, unit, [Query(f"max by ({_BY_GPU}) ({metric}{{{selector}}})", _GPU)], description, width=width)


def _engine(title: str, engine: str, description: str = "") -> Panel:
    more = f'zernel_gpu_engine="{engine}"'
    return _gauge(title, "percentunit", "zernel_gpu_engine_active_ratio", more, description)


def _traffic(title: str, link: str) -> Panel:
    metric = f"zernel_gpu_{link}_throughput_bytes_per_second"
    by = f"{_BY_GPU}, network_io_direction"
    return Panel(title, "Bps", [Query(f"max by ({by}) ({metric}{{{_CHOSEN}}})", _GPU + " {{network_io_direction}}")])


def _errors(title: str, metric: str, by: str, legend: str, description: str = "", no_value: str = "") -> Panel:
    """A counter since its start: single errors matter."""
    query = Query(f"sum by ({_BY_GPU}, {by}) ({metric}{{{_CHOSEN}}})", f"{_GPU} {legend}")
    return Panel(title, "short", [query], description, no_value=no_value)


_LOAD = Row(
    "Load",
    [
        _gauge(
            "Utilization",
            "percentunit",
            "hw_gpu_utilization_ratio",
            'hw_gpu_task="general"',
            "Share of time in which any kernel ran, on however few SMs.",
        ),
        _engine("SM activity", "sm", "Share of the SMs that worked, as a mean over time. From the profiler (GPM)."),
        _engine("Tensor core activity", "tensor", "0 means that no matrix product uses the tensor cores."),
        _gauge(
            "SM occupancy",
            "percentunit",
            "zernel_gpu_sm_occupancy_ratio",
            description="Resident warps, as a share of the warps that fit.",
        ),
        _engine("Memory bandwidth", "dram", "Share of the highest bandwidth."),
        _engine("Graphics engine", "graphics", "Share of time in which a context had work for the GPU."),
    ],
)
_STATE = Row(
    "Memory, power and clocks",
    [
        _gauge("Memory in use", "bytes", "hw_gpu_memory_usage_bytes"),
        Panel(
            "Memory by process",
            "bytes",
            [
                Query(
                    f"sum by ({_BY_GPU}, process_executable_name, process_pid) "
                    f"(zernel_gpu_process_memory_usage_bytes{{{_CHOSEN}}})",
                    _GPU + " {{process_executable_name}} {{process_pid}}",
                )
            ],
        ),
        Panel(
            "Power",
            "watt",
            [
                Query(f"max by ({_BY_GPU}) (hw_power_watts{{{_CHOSEN}}})", _GPU),
                Query(f"min(zernel_gpu_power_limit_enforced_watts{{{_CHOSEN}}})", "lowest limit"),
            ],
        ),
        _gauge("Temperature", "celsius", "hw_temperature_celsius", 'hw_sensor_location="gpu"'),
        _gauge("SM clock", "hertz", "zernel_gpu_clock_hertz", 'zernel_gpu_clock_domain="sm"'),
        Panel(
            "Reduced clocks",
            "percentunit",
            [
                Query(
                    f"sum by ({_BY_GPU}, zernel_gpu_throttle_reason) "
                    f"(rate(zernel_gpu_throttle_time_seconds_total{{{_CHOSEN}}}{_INTERVAL}))",
                    _GPU + " {{zernel_gpu_throttle_reason}}",
                )
            ],
            "Share of time, by reason. sw_power_cap is usual under full load. Heat and power brakes are faults.",
        ),
    ],
)
_LINKS = Row(
    "Links",
    [
        _traffic("PCIe", "pcie"),
        _traffic("NVLink", "nvlink"),
        Panel(
            "NVLink links",
            "short",
            [
                Query(
                    f"sum by ({_BY_GPU}, zernel_gpu_nvlink_state) (zernel_gpu_nvlink_links{{{_CHOSEN}}})",
                    _GPU + " {{zernel_gpu_nvlink_state}}",
                )
            ],
        ),
        Panel(
            "PCIe replays",
            "ops",
            [Query(f"sum by ({_BY_GPU}) (rate(zernel_gpu_pcie_replays_total{{{_CHOSEN}}}{_INTERVAL}))", _GPU)],
            "Packets that were sent again.",
        ),
        _errors("NVLink errors", "zernel_gpu_nvlink_errors_total", "error_type", "{{error_type}}"),
        _gauge("PCIe lanes", "short", "zernel_gpu_pcie_link_width"),
    ],
)
_HEALTH = Row(
    "Health",
    [
        Panel(
            "State",
            "short",
            [Query(f"max by ({_BY_GPU}, hw_model, hw_state) (hw_status{{{_CHOSEN}}} == 1)")],
            kind="table",
        ),
        _errors("ECC errors", "hw_errors_total", "error_type", "{{error_type}}", "Since the driver was loaded."),
        _errors(
            "XID errors",
            "zernel_gpu_xid_errors_total",
            "zernel_gpu_xid_code",
            "XID {{zernel_gpu_xid_code}}",
            "Since the start of the collector, by code.",
            no_value="0",
        ),
        _errors("Remapped rows", "zernel_gpu_memory_remapped_rows_total", "error_type", "{{error_type}}"),
        Panel(
            "Waiting for a reset",
            "short",
            [
                Query(f"max by ({_BY_GPU}) (zernel_gpu_memory_row_remap_pending{{{_CHOSEN}}})", f"{_GPU} rows"),
                Query(f"max by ({_BY_GPU}) (zernel_gpu_memory_row_remap_failed{{{_CHOSEN}}})", f"{_GPU} failed"),
            ],
            "1: memory rows are replaced at the next reset, or could not be replaced.",
        ),
        Panel(
            "Energy",
            "watt",
            [Query(f"sum by ({_BY_GPU}) (rate(hw_energy_joules_total{{{_CHOSEN}}}{_INTERVAL}))", _GPU)],
            "Joules per second, from the energy counter.",
        ),
    ],
)
NODE = Dashboard(
    "otel-zernel-node",
    "otel-zernel / GPUs of a host",
    "The GPUs of one host.",
    [
        Variable("host", "Host", "hw_gpu_utilization_ratio", "host_name"),
        Variable("gpu", "GPU", 'hw_gpu_utilization_ratio{host_name="$host"}', "zernel_gpu_index", several=True),
    ],
    [_LOAD, _STATE, _LINKS, _HEALTH],
)
