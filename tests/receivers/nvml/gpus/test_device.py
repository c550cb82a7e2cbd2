"""One device: its queries, and the points of their answers."""

from collections import Counter as Counted

import pytest

from otel_zernel.batch import Batch
from otel_zernel.testing import FakeClock
from otel_zernel_receivers.nvml.driver.events import Xid
from otel_zernel_receivers.nvml.driver.library import GpuLost, NvmlLibrary, NvmlUnavailable
from otel_zernel_receivers.nvml.points.metrics import METRICS
from otel_zernel_receivers.nvml.readings.polling import Measurements, PolledQuery, QueryPoller
from tests.receivers.nvml.reading import metrics, values
from tests.receivers.nvml.running import Boot, Host


@pytest.mark.parametrize(
    ("version", "reasons"),
    [
        ("580.65.06", {"sw_thermal_slowdown": 1, "hw_thermal_slowdown": 2, "hw_power_brake": 3}),
        ("580.82.07", {"sw_thermal_slowdown": 4, "hw_thermal_slowdown": 5, "hw_power_brake": 6}),
        ("580.76.05", {}),
    ],
)
def test_throttle_times_are_read_by_the_numbers_of_the_driver(
    version: str, reasons: dict[str, float], driver: Boot
) -> None:
    controls = driver("h200")
    controls.apply("driver", f"DriverVersion = {version}")
    numbers = (251, 252, 253, 269, 270, 271)
    controls.apply("gpu 0", *(f"Field {number} = {index}000000000" for index, number in enumerate(numbers, 1)))
    with Host().gpus() as gpus:
        times = values(gpus[0].scrape(), "zernel.gpu.throttle.time")
    moved = ("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake")
    found = {reason: times.get(f"zernel.gpu.throttle.reason={reason}") for reason in moved}
    assert found == {reason: reasons.get(reason) for reason in moved}


FABRIC = "zernel.gpu.fabric.problem"
HEALTHY = dict.fromkeys(
    ("registration", "degraded_bandwidth", "route_recovery", "route_unhealthy", "access_timeout_recovery"), 0
) | {"incorrect_configuration": 0}


@pytest.mark.parametrize(
    ("fabric", "problems"),
    [
        ("2 0 0x2ff", {}),  # still registering: status and health mask have no meaning
        ("3 0 0", {"registration": 0}),  # an older driver, without a health mask
        ("3 1 0", {"registration": 1}),
        ("3 0 0x1aa", HEALTHY),
        ("3 0 0x59a", HEALTHY | {"route_unhealthy": 1, "incorrect_configuration": 1}),
    ],
)
def test_problems_of_the_fabric_are_read_once_the_gpu_is_registered(
    fabric: str, problems: dict[str, float], driver: Boot
) -> None:
    driver("h200").apply("gpu 0", f"GpuFabricInfo = {fabric}")
    with Host().gpus() as gpus:
        batch = gpus[0].scrape()
    assert values(batch, FABRIC) == {f"{FABRIC}.type={type_}": value for type_, value in problems.items()}
    assert values(batch, "hw.status")["hw.state=degraded"] == any(problems.values())


def test_the_state_of_ended_processes_is_forgotten(driver: Boot) -> None:
    controls = driver("h200")
    with Host().gpus() as gpus:
        for pid in range(100, 400):
            controls.apply("gpu 0", f"ComputeRunningProcesses = {pid} 5")
            gpus[0].scrape()
        board = gpus[0].board
        assert len(board._history.processes._attributes) == 1
        assert not [one for one in board._latest if one.metric.startswith("zernel.gpu.process.")]


def test_a_serial_number_that_is_not_utf_8_is_not_sent(driver: Boot) -> None:
    driver("h200").apply("gpu 0", "Serial = \udcff\udcfe")
    with Host().gpus() as gpus:
        assert "hw.serial_number" not in gpus[0].board.identity.resource


def test_an_unsupported_query_runs_once(driver: Boot) -> None:
    controls, host = driver("geforce"), Host()
    with host.gpus() as gpus:
        gpus[0].scrape()
        controls.apply("gpu 0", "MarginTemperature = 12", "Field 83 = 1000")
        batch = gpus[0].scrape()
    assert values(batch, "zernel.gpu.temperature.margin") == {}
    assert list(values(batch, "hw.energy")) == ["zernel.gpu.energy.source=power_samples"]


def test_after_a_reload_of_the_driver_all_queries_run_again(driver: Boot) -> None:
    controls, host = driver("geforce"), Host()
    with host.gpus() as gpus:
        gpus[0].scrape()
    controls.apply("gpu 0", "MarginTemperature = 12")
    with host.gpus() as gpus:
        assert values(gpus[0].scrape(), "zernel.gpu.temperature.margin") == {"": 12}


@pytest.mark.parametrize(
    ("query", "answer", "name", "metric"),
    [
        ("PowerUsage", "99000", "nvmlDeviceGetPowerUsage", "hw.power"),
        ("Samples 0", "1000000 125310", "nvmlDeviceGetSamples", "zernel.gpu.power.distribution"),
    ],
)
def test_a_query_that_fails_once_is_counted_and_runs_again(
    driver: Boot, query: str, answer: str, name: str, metric: str
) -> None:
    controls, host = driver("h200"), Host()
    controls.apply("gpu 0", f"{query} = !999")
    with host.gpus() as gpus:
        assert metrics(gpus[0].scrape(), metric) == []
        assert host.failed == [(name, "unknown")]
        controls.apply("gpu 0", f"{query} = {answer}")
        assert metrics(gpus[0].scrape(), metric)


def test_fields_that_fail_once_are_counted_one_by_one_and_run_again(driver: Boot) -> None:
    controls, host = driver("h200"), Host()
    controls.apply("gpu 0", "Field 82 = !999", "Field 142 = !10")
    with host.gpus() as gpus:
        batch = gpus[0].scrape()
        assert host.failed == [("NVML_FI_DEV_MEMORY_TEMP", "unknown"), ("NVML_FI_DEV_REMAPPED_COR", "timeout")]
        assert values(batch, "hw.temperature") == {"hw.sensor_location=gpu": 42}
        assert values(batch, "zernel.gpu.memory.remapped_rows") == {"error.type=uncorrected": 0}
        controls.apply("gpu 0", "Field 82 = 43u", "Field 142 = 0u")
        assert len(values(gpus[0].scrape(), "hw.temperature")) == 2
    assert len(host.failed) == 2


@pytest.mark.parametrize(
    ("line", "name", "error"),
    [
        ("Field 82 = 43x", "NVML_FI_DEV_MEMORY_TEMP", "unknown_value_type"),
        ("MemoryInfo_v2 = 0 0 0 0", "nvmlDeviceGetMemoryInfo", "ZeroDivisionError"),
    ],
)
def test_an_invalid_answer_costs_that_query_or_field_only(driver: Boot, line: str, name: str, error: str) -> None:
    controls, host = driver("h200"), Host()
    controls.apply("gpu 0", line)
    with host.gpus() as gpus:
        batch = gpus[0].scrape()
    assert host.failed == [(name, error)]
    assert values(batch, "hw.power")
    assert values(batch, "zernel.gpu.memory.power") == {"": 36.43}


def test_a_board_with_some_failing_queries_is_not_failed(driver: Boot) -> None:
    driver("h200").apply("gpu 0", "PowerUsage = !999", "FieldValues = !999", "ClockInfo 0 = !999")
    with Host().gpus() as gpus:
        assert values(gpus[0].scrape(), "hw.status")["hw.state=ok"] == 1


def test_slow_queries_run_less_often_and_the_others_always(driver: Boot) -> None:
    driver("h200")
    clock = FakeClock()
    runs: Counted[str] = Counted()

    def query(name: str, seconds: float) -> PolledQuery:
        def answer(nvml: object, device: object) -> Measurements:
            runs[name] += 1
            clock.advance(seconds)
            return {}

        return PolledQuery(name, [answer])

    library = NvmlLibrary()
    poller = QueryPoller(library, None, 0.01, clock.monotonic)
    poller.queries = [query("slow", 0.03), query("quick", 0.0001), query("endless", 60)]
    for _ in range(12):
        poller.poll()
    library.close()
    assert runs == {"slow": 4, "quick": 12, "endless": 1}


def test_a_query_that_was_slow_once_recovers() -> None:
    query = PolledQuery("once", [])
    query.schedule(0.1, 1, 0.01)
    gaps = []
    for _ in range(12):
        before = query.due
        query.schedule(0.001, before, 0.01)
        gaps.append(query.due - before)
    assert gaps == sorted(gaps, reverse=True)
    assert (gaps[0], gaps[-1]) == (8, 1)


@pytest.mark.parametrize(
    ("section", "line", "error"),
    [("gpu 0", "lost = !15", GpuLost), ("gpu 0", "lost = !16", GpuLost), ("driver", "broken = !1", NvmlUnavailable)],
)
def test_a_lost_gpu_and_an_unloaded_driver_are_told_from_a_failing_query(
    driver: Boot, section: str, line: str, error: type[Exception]
) -> None:
    controls = driver("h200")
    with Host().gpus() as gpus:
        gpus[0].scrape()
        controls.apply(section, line)
        with pytest.raises(error):
            gpus[0].scrape()


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("PerformanceState = 0", "ok"),
        ("CurrentClocksEventReasons = 0x4", "ok"),  # normal on a busy GPU
        ("CurrentClocksEventReasons = 0x48", "degraded"),
        ("CurrPcieLinkWidth = 8", "degraded"),
        ("Field 4 = 1", "degraded"),
        ("Field 6 = 1", "ok"),  # from before the driver was loaded
        ("RowRemapperHistogram = 3071 0 0 0 1", "predicted_failure"),
        ("Field 144 = 1u", "predicted_failure"),
        ("SramEccErrorStatus = 0 0 0 0 0 0 0 0 0 0 0 1", "predicted_failure"),
        ("RepairStatus = 0 1", "predicted_failure"),
        ("Field 145 = 1u", "failed"),
        ("Field 230 = 1u", "failed"),
    ],
)
def test_the_status_follows_its_rules(driver: Boot, line: str, state: str) -> None:
    driver("h200").apply("gpu 0", line)
    with Host().gpus() as gpus:
        status = values(gpus[0].scrape(), "hw.status")
    assert [name for name, value in status.items() if value] == [f"hw.state={state}"]


def test_the_status_works_with_all_other_metrics_disabled(driver: Boot) -> None:
    driver("h200").apply("gpu 0", "Field 145 = 1u")
    off = {name: {"enabled": name == "hw.status"} for name in METRICS}
    with Host({"metrics": off, "processes": {"enabled": False}}).gpus() as gpus:
        batch = gpus[0].scrape()
    assert values(batch, "hw.status")["hw.state=failed"] == 1
    assert {
        metric.name
        for resource_metric in batch.metrics.resource_metrics
        for metric in resource_metric.scope_metrics[0].metrics
    } == {"hw.status"}


HEALTH = {"metrics": {"zernel.gpu.health": {"enabled": True}, "hw.status": {"enabled": False}}}


def incidents(batch: Batch) -> dict[str, tuple[str, float]]:
    """The error and the result of each watch that has not passed."""
    points = values(batch, "zernel.gpu.health")
    parts = {name: dict(part.split("=") for part in name.split()) for name in points}
    assert all(points[name] == 0 for name in parts if parts[name]["zernel.gpu.health.error"] == "DCGM_FR_OK")
    return {
        parts[name]["zernel.gpu.health.watch"]: (parts[name]["zernel.gpu.health.error"], value)
        for name, value in points.items()
        if value
    }


@pytest.mark.parametrize(
    ("line", "watch", "error", "result"),
    [
        ("CurrentClocksEventReasons = 0x40", "THERMAL", "CLOCK_THROTTLE_THERMAL", 10),
        ("CurrentClocksEventReasons = 0x80", "POWER", "CLOCK_THROTTLE_POWER", 10),
        ("CurrPcieLinkWidth = 8", "PCIE", "PCIE_WIDTH", 10),
        ("Field 4 = 1", "MEM", "VOLATILE_DBE_DETECTED", 20),
        ("Field 144 = 1u", "MEM", "PENDING_ROW_REMAP", 10),
        ("Field 145 = 1u", "MEM", "ROW_REMAP_FAILURE", 20),
        ("SramEccErrorStatus = 0 0 0 0 0 0 0 0 0 0 0 1", "MEM", "SRAM_THRESHOLD", 10),
        ("Field 230 = 1u", "DRIVER", "GPU_RECOVERY_RESET", 20),
        ("Field 230 = 3u", "DRIVER", "GPU_RECOVERY_DRAIN_P2P", 10),
        ("GpuFabricInfo = 3 1 0", "NVLINK", "FABRIC_PROBE_STATE", 20),
        ("lost = !999", "ALL", "FALLEN_OFF_BUS", 20),
    ],
)
def test_each_problem_is_an_incident_of_its_health_check(
    driver: Boot, line: str, watch: str, error: str, result: float
) -> None:
    controls = driver("h200")
    with Host(HEALTH).gpus() as gpus:
        controls.apply("gpu 0", line)
        assert incidents(gpus[0].scrape())[watch] == (f"DCGM_FR_{error}", result)


def test_a_fatal_xid_and_the_loss_of_a_gpu_are_incidents_of_the_whole_gpu(driver: Boot) -> None:
    controls, host = driver("h200"), Host(HEALTH)
    with host.gpus() as gpus:
        assert incidents(gpus[0].scrape()) == {}
        host.xids.add(gpus[0].board.identity.uuid, Xid(95))
        assert incidents(gpus[0].scrape()) == {"ALL": ("DCGM_FR_UNCONTAINED_ERROR", 20)}
        controls.apply("gpu 0", "lost = !15")
        assert incidents(gpus[0].board.failed_batch())["ALL"] == ("DCGM_FR_FALLEN_OFF_BUS", 20)


def test_a_health_check_with_another_result_ends_the_series_before(driver: Boot) -> None:
    controls = driver("h200")
    with Host(HEALTH).gpus() as gpus:
        gpus[0].scrape()
        controls.apply("gpu 0", "CurrPcieLinkWidth = 8")
        points = [
            point
            for metric in metrics(gpus[0].scrape(), "zernel.gpu.health")
            for point in metric.gauge.data_points
            if any(attribute.value.string_value == "PCIE" for attribute in point.attributes)
        ]
    errors = {
        point.flags: {attribute.key: attribute.value.string_value for attribute in point.attributes} for point in points
    }
    assert {flags: error["zernel.gpu.health.error"] for flags, error in errors.items()} == {
        0: "DCGM_FR_PCIE_WIDTH",
        1: "DCGM_FR_OK",
    }


def test_peers_that_cannot_be_reached_have_an_unknown_status_and_cost_nothing_else(driver: Boot) -> None:
    controls = driver("h100x8")
    host = Host({"metrics": {"zernel.gpu.p2p.status": {"enabled": True}}})
    with host.gpus() as gpus:
        controls.apply("gpu 0", "P2PStatus 1 2 = 4", "gpu 2", "HandleByIndex = !15")
        batch = gpus[0].scrape()
    assert values(batch, "zernel.gpu.p2p.status") == {
        "zernel.gpu.p2p.peer=1 zernel.gpu.p2p.state=DisabledByRegKey": 4,
        "zernel.gpu.p2p.peer=2 zernel.gpu.p2p.state=Unknown": 6,
        **{f"zernel.gpu.p2p.peer={peer} zernel.gpu.p2p.state=OK": 0 for peer in range(3, 8)},
    }
    assert values(batch, "hw.status")["hw.state=ok"] == 1
    assert host.failed == []
