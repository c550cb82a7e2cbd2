"""The hosts and GPUs of series, as records."""

from collections.abc import Iterable, Mapping
from typing import Any

from otel_zernel_libraries.store.queries.series import SeriesEntry

Record = Mapping[str, Any]


def hosts_of(series: Iterable[SeriesEntry]) -> list[Record]:
    """The hosts by name, with their numbers of GPUs and series."""
    hosts: dict[str, list[SeriesEntry]] = {}
    for one in series:
        if (host := one.label("host_id")) is not None:
            hosts.setdefault(host, []).append(one)
    return [
        {"host_id": host, "gpus": len(_by_gpu(members)), "series": len(members)}
        for host, members in sorted(hosts.items())
    ]


def gpus_of(series: Iterable[SeriesEntry], host: str) -> list[Record] | None:
    """The GPUs of a host, by index; None if there is no such host."""
    found = [one for one in series if one.label("host_id") == host]
    if not found:
        return None
    return [
        {
            "gpu_id": members[0].label("gpu_id"),
            "uuid": members[0].label("uuid"),
            "model": members[0].label("model"),
            "series": len(members),
        }
        for _, members in sorted(_by_gpu(found).items())
    ]


def totals_of(series: Iterable[SeriesEntry]) -> Record:
    """The numbers of series, metrics, hosts and GPUs."""
    series = [*series]
    return {
        "series": len(series),
        "metrics": len({one.metric for one in series}),
        "hosts": len({host for one in series if (host := one.label("host_id")) is not None}),
        "gpus": len(_by_gpu(series)),
    }


def _by_gpu(series: Iterable[SeriesEntry]) -> dict[tuple[str, str], list[SeriesEntry]]:
    """The series of each GPU, by index and UUID."""
    found: dict[tuple[str, str], list[SeriesEntry]] = {}
    for one in series:
        uuid, index = one.label("uuid"), one.label("gpu_id")
        if uuid is not None or index is not None:
            host = "" if uuid is not None else one.label("host_id") or ""
            found.setdefault((index or "", uuid or host), []).append(one)
    return found
