"""The report for programs: durations in s, shares from 0 to 1."""

import json
from dataclasses import asdict
from typing import Any

from otel_zernel_commands.why.findings import GpuRow, JobFindings, RankRow, ThreadRow, WhyReport


def report_json(report: WhyReport) -> str:
    """One JSON object, indented, without time lines. Ends with a line break."""
    tree = {
        "started": report.started,
        "seconds": report.seconds,
        "interrupted": report.is_interrupted,
        "processes": report.processes,
        "jobs": list(map(_job, report.jobs)),
        "gpus": list(map(_gpu, report.gpus)),
        "not_seen": list(report.notes),
    }
    return json.dumps(tree, indent=2) + "\n"


def _job(job: JobFindings) -> dict[str, Any]:
    return {
        "title": job.title,
        "host": job.host,
        "world_size": job.world_size,
        "seconds": job.seconds,
        "verdict": job.diagnosis.verdict,
        "why": job.diagnosis.sentence,
        "evidence": dict(job.diagnosis.evidence),
        "try": list(job.diagnosis.advice),
        "start": asdict(job.start) if job.start else None,
        "step": asdict(job.steps),
        "time": [
            {"position": row.position, "phase": row.phase, **asdict(one)} for row in job.times for one in row.activities
        ],
        "phases": [] if job.times else [asdict(row) for row in job.shares],
        "device": None if job.device is None else {**asdict(job.device), "starved": dict(job.device.starved)},
        "ranks": list(map(_rank, job.ranks)),
        "gpus": list(map(_gpu, job.gpus)),
        "threads": list(map(_thread, job.threads)),
        "not_seen": list(job.notes),
    }


def _rank(rank: RankRow) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "pid": rank.pid,
        "steps": rank.steps,
        "p50": rank.p50,
        "p99": rank.p99,
        "shares": dict(rank.shares),
        "lateness": rank.lateness,
    }


def _thread(row: ThreadRow) -> dict[str, Any]:
    return {**asdict(row), "waits": dict(row.waits)}


def _gpu(gpu: GpuRow) -> dict[str, Any]:
    return {**asdict(gpu), "slowed": None if gpu.slowed is None else dict(gpu.slowed)}
