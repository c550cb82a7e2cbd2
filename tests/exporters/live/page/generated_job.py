"""A job of many ranks with a straggler, as the phases processor and the nvml receiver report it."""

import random
from collections.abc import Iterator

from otel_zernel.batch import Batch
from otel_zernel_libraries.training.step_spans import CriticalPath, JobStepSpan
from tests.exporters.live.live_runs import SECOND, Attributes, durations, phase_times, points, spans, step

PHASES = ("data_loading", "gpu_compute", "nccl_collective", "optimizer_step", "unknown")
JOB: Attributes = {"service.name": "pretrain-7b", "zernel.job.id": "pretrain-7b"}
STEPS = 10
"""Steps in a second."""


class GeneratedJob:
    """The batches of a job, second by second. `start_ns` is when its first second begins."""

    def __init__(self, ranks: int, start_ns: int, *, straggler: int = 13, seed: int = 1) -> None:
        self.ranks = ranks
        self.straggler = straggler
        self._start_ns = start_ns
        self._random = random.Random(seed)
        self._totals = [[0.0] * len(PHASES) for _ in range(ranks)]

    def seconds(self, count: int) -> list[Iterator[Batch]]:
        """The first seconds of the job."""
        return [self.second(number) for number in range(count)]

    def second(self, number: int) -> Iterator[Batch]:
        """One second: a report of each rank and of the job, traces of all steps, readings of all GPUs."""
        begins = self._start_ns + number * SECOND
        lasts = [self._random.uniform(0.085, 0.1) for _ in range(STEPS)]
        parts = {rank: [self._parts(rank, last) for last in lasts] for rank in range(self.ranks)}
        for rank, steps in parts.items():
            yield from self._rank(rank, number, begins, steps, lasts)
            yield from self._gpu(rank, begins + SECOND)
        yield from self._job(number, begins + SECOND)
        for at in range(STEPS):
            start = begins + at * SECOND // STEPS
            yield self._job_step(number * STEPS + at + 1, start, lasts[at])
            for rank, steps in parts.items():
                yield self._step(rank, number * STEPS + at + 1, start, lasts[at], steps[at])

    def process(self, rank: int) -> Attributes:
        """The attributes of a rank's process."""
        return {
            "host.name": f"node{rank // 8}",
            "process.pid": 1000 + rank,
            "process.creation.time": "2026-01-01T00:00:00Z",
            "process.executable.name": "python3.11",
            "zernel.program": "pretrain.py",
            "zernel.rank": rank,
            "zernel.world_size": self.ranks,
            "zernel.job.id": "pretrain-7b",
        }

    def _parts(self, rank: int, lasts: float) -> list[float]:
        """The times of the phases of a step. The others wait for the straggler in collectives."""
        waits = 0.004 if rank == self.straggler else self._random.uniform(0.02, 0.03)
        loads, optimizes = self._random.uniform(0.002, 0.008), 0.006
        return [loads, lasts - loads - waits - optimizes - 0.001, waits, optimizes, 0.001]

    def _rank(
        self, rank: int, number: int, begins: int, steps: list[list[float]], lasts: list[float]
    ) -> Iterator[Batch]:
        process, now = self.process(rank), begins + SECOND
        sums = [sum(one[phase] for one in steps) for phase in range(len(PHASES))]
        totals = self._totals[rank] = [total + more for total, more in zip(self._totals[rank], sums, strict=True)]
        yield phase_times(process, time_ns=now, **dict(zip(PHASES, totals, strict=True)))
        shares: list[tuple[Attributes, float]] = [
            ({"zernel.phase": phase, "zernel.phase.source": "scopes"}, one / sum(sums))
            for phase, one in zip(PHASES, sums, strict=True)
        ]
        yield points("zernel.phase.fraction", shares, process, time_ns=now)
        yield points("zernel.step.rate", [({}, float(STEPS))], process, time_ns=now)
        yield points("zernel.step.jitter", [({}, self._random.uniform(0.03, 0.06))], process, time_ns=now)
        yield points("zernel.steps", [({"zernel.step.kind": "training"}, (number + 1) * STEPS)], process, time_ns=now)
        yield points("zernel.verdict", [({"zernel.verdict": "compute_bound"}, 1)], process, time_ns=now)
        yield durations(*sorted(set(lasts)), resource=process, time_ns=now)

    def _job(self, number: int, now: int) -> Iterator[Batch]:
        late: list[tuple[Attributes, float]] = [
            ({"zernel.rank": rank}, 0.021 if rank == self.straggler else self._random.uniform(0, 0.002))
            for rank in range(self.ranks)
        ]
        yield points("zernel.job.verdict", [({"zernel.job.verdict": "straggler"}, 1)], JOB, time_ns=now)
        yield points("zernel.job.rank.lateness", late, JOB, time_ns=now)
        yield points("zernel.job.collective.transfer", [({}, 0.004)], JOB, time_ns=now)
        yield points("zernel.job.step.duration", [({}, 0.093)], JOB, time_ns=now)
        waits = {"gpu_compute": 0.7, "data_loading": 0.05, "optimizer_step": 0.06}
        critical: list[tuple[Attributes, float]] = [
            ({"zernel.rank": self.straggler, "zernel.phase": phase}, wait * (number + 1))
            for phase, wait in waits.items()
        ]
        yield points("zernel.step.critical_path.time", critical, JOB, time_ns=now)

    def _job_step(self, number: int, start: int, lasts: float) -> Batch:
        path = CriticalPath(self.straggler, {"gpu_compute": 1})
        end = start + int(lasts * 1e9)
        made = JobStepSpan(
            start_ns=start, end_ns=end, number=number, ranks=self.ranks, world_size=self.ranks, critical_path=path
        )
        return spans(made, JOB, number.to_bytes(16, "big"))

    def _step(self, rank: int, number: int, start: int, lasts: float, parts: list[float]) -> Batch:
        trace = number.to_bytes(16, "big")
        return step(number, start, int(lasts * 1e9), self.process(rank), trace, parts)

    def _gpu(self, rank: int, now: int) -> Iterator[Batch]:
        gpu: Attributes = {
            "host.name": f"node{rank // 8}",
            "hw.id": f"GPU-{rank:04}",
            "hw.model": "NVIDIA H100 80GB HBM3",
            "zernel.gpu.index": rank % 8,
        }
        hot = rank == self.straggler
        readings: list[tuple[str, Attributes, float]] = [
            ("hw.gpu.utilization", {"hw.gpu.task": "general"}, 0.97),
            ("zernel.gpu.engine.active", {"zernel.gpu.engine": "sm"}, self._random.uniform(0.6, 0.7)),
            ("zernel.gpu.engine.active", {"zernel.gpu.engine": "tensor"}, self._random.uniform(0.4, 0.5)),
            ("zernel.gpu.engine.active", {"zernel.gpu.engine": "dram"}, self._random.uniform(0.3, 0.5)),
            ("zernel.gpu.sm.occupancy", {}, self._random.uniform(0.3, 0.4)),
            ("hw.gpu.memory.usage", {}, 61e9 + rank * 1e7),
            ("hw.gpu.memory.limit", {}, 80e9),
            ("hw.power", {}, 420.0 if hot else self._random.uniform(600, 660)),
            ("zernel.gpu.power.limit", {}, 700.0),
            ("hw.temperature", {"hw.sensor_location": "gpu"}, 86.0 if hot else 62.0),
            ("zernel.gpu.throttle.active", {"zernel.gpu.throttle.reason": "hw_thermal_slowdown"}, float(hot)),
        ]
        if rank == self.straggler + 1:
            readings.append(("zernel.gpu.xid.errors", {"zernel.gpu.xid.code": 94}, 2.0))
        for name, labels, value in readings:
            yield points(name, [(labels, value)], gpu, time_ns=now)
