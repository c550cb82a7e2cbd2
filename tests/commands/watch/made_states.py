"""Live states for the screens."""

from typing import Any

NOW = 1_795_377_600_000.0
"""Unix time, ms."""
PHASES = ("data_loading", "gpu_compute", "nccl_collective", "optimizer_step", "unknown")


def job_state(ranks: int = 8, gpus: int | None = None) -> dict[str, Any]:
    """A job whose rank 3 is late, on hosts with 8 GPUs each. Every value depends on its position only."""
    ids = [rank_id(number) for number in range(ranks)]
    return {
        "schema": 2,
        "seq": 7,
        "time": int(NOW),
        "limits": {"timeline": 200, "heat": 200, "shares": 600},
        "collector": {
            "host": "node0",
            "version": "0.1.0",
            "up_since": int(NOW) - 7_384_000,
            "problems": {},
            "queues": {"live": {"items": 0, "capacity": 16}},
            "dropped": {},
        },
        "gpus": {f"GPU-{number:04}": _gpu(number) for number in range(ranks if gpus is None else gpus)},
        "ranks": {id_: _rank(number) for number, id_ in enumerate(ids)},
        "jobs": {
            "llama": {
                "name": "train.py",
                "ranks": ids,
                "verdict": {
                    "name": "straggler",
                    "ranks": [rank_id(3)],
                    "evidence": {"lateness": 0.1213, "transfer": 0.0042},
                },
                "step_time": 0.4523,
                "critical_path": {"3": {"data_loading": 12.1, "gpu_compute": 30.0}},
            }
        },
        "timeline": {id_: [_step(number, step) for step in range(20)] for number, id_ in enumerate(ids)},
        "heat": {"bounds": [0.001 * 1.12**at for at in range(128)], "columns": {}},
        "shares": {"llama": [[int(NOW) - 1000 * (60 - at), _point(at)] for at in range(60)]},
    }


def three_jobs() -> dict[str, Any]:
    """A job of 8 ranks, and two programs that train alone, each with numbers of its own."""
    state = job_state()
    for pid, name, rate, step, verdict in (
        (901, "finetune.py", 2.0, 0.5, "input_bound"),
        (902, "ppo.py", 300.0, 0.0033, "compute_bound"),
    ):
        id_ = f"node0/{pid}/2026-11-22T10:00:00Z"
        shares = dict.fromkeys(PHASES, 0.0) | {"data_loading" if verdict == "input_bound" else "gpu_compute": 1.0}
        state["ranks"][id_] = {
            "job": id_,
            "host": "node0",
            "pid": pid,
            "program": name,
            "executable": "python3.11",
            "shares": shares,
            "step_rate": rate,
            "step": {"p50": step, "p99": 2 * step},
            "seen": int(NOW) - 300,
            "verdict": {"name": verdict, "evidence": {max(shares, key=lambda phase: shares[phase]): 1.0}},
        }
        state["jobs"][id_] = {"name": name, "ranks": [id_]}
        state["shares"][id_] = [[int(NOW), [*shares.values()]]]
    return state


def rank_id(number: int) -> str:
    return f"node{number // 8}/{4700 + number}/2026-11-22T10:00:00Z"


def _point(at: int) -> list[float]:
    """The phase shares of a second: data loading is the largest in 5 of 20."""
    return [0.5, 0.3, 0.1, 0.1, 0.0] if at % 20 < 5 else [0.1, 0.6, 0.2, 0.1, 0.0]


def _gpu(number: int) -> dict[str, Any]:
    return {
        "host": f"node{number // 8}",
        "index": number % 8,
        "name": "NVIDIA H100 80GB HBM3",
        "utilization": 0.97 - 0.05 * (number % 3),
        "sm_active": 0.81 - 0.03 * (number % 3),
        "tensor_active": 0.41,
        "dram_active": 0.36,
        "memory_used": 65_700_000_000 + 1_000_000_000 * (number % 4),
        "memory_total": 85_520_809_984,
        "power": 612.4 + number % 5,
        "power_limit": 700.0,
        "temperature": 61.0 + number % 7,
        "throttled": ["sw_power_cap"] if number == 3 else [],
        "xid": {"79": 1} if number == 5 else {},
        "seen": int(NOW) - 400,
    }


def _rank(number: int) -> dict[str, Any]:
    late = number == 3
    shares = (0.31, 0.52, 0.12, 0.05, 0.0) if late else (0.06, 0.52, 0.37, 0.05, 0.0)
    phase = PHASES[number % 4]
    return {
        "job": "llama",
        "rank": number,
        "host": f"node{number // 8}",
        "pid": 4700 + number,
        "gpu": f"GPU-{number:04}",
        "executable": "python3.11",
        "phase": phase,
        "phase_since": int(NOW) - 120,
        "source": "scopes",
        "shares": dict(zip(PHASES, shares, strict=True)),
        "times": {phase: share * 900 for phase, share in zip(PHASES, shares, strict=True)},
        "moments": {
            "load": {"python": shares[0]},
            "forward": {"operator": 0.2},
            "backward": {"operator": 0.32, "collective": shares[2]},
            "optimizer": {"operator": 0.05},
        },
        "device": {"busy": 0.52, "starved": {"load": shares[0], "optimizer": 0.05}, "undetermined": 0.43 - shares[0]},
        "steps": 1990 + number,
        "step_rate": 2.21,
        "step": {"p50": 0.4512 + number / 10_000, "p99": 0.61 + number / 1000, "last": 0.448},
        "jitter": 0.08,
        "verdict": {"name": "input_bound", "evidence": {"data_loading": 0.31}}
        if late
        else {"name": "communication_bound", "evidence": {"nccl_collective": 0.37}},
        "workers": {"count": 4, "cpu_time": 310.0, "io_wait": 12.5},
        "collectives": {"all_reduce": {"count": 960, "p50": 0.0042 + number / 10_000, "p99": 0.131}},
        "launch": {"count": 54_000, "p50": 6.1e-06, "p99": 4.3e-05},
        "lateness": 0.1213 if late else 0.001 * (number % 3),
        "seen": int(NOW) - 400,
    }


def _step(number: int, step: int) -> list[Any]:
    lasted = 0.45 + 0.01 * (step % 4)
    data = 0.14 if number == 3 else 0.03
    parts = [data, 0.23, lasted - data - 0.26, 0.03, 0.0]
    return [1970 + step, NOW - 460 * (20 - step), lasted, parts, int(number == 3)]
