"""The configuration of the host receiver, as a user of the OpenTelemetry Collector writes it."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from otel_zernel.errors import CannotStart
from otel_zernel_receivers.host.config import HostConfig
from tests.receivers.host.scraping import receiver


def test_without_scrapers_all_but_single_processes_are_read() -> None:
    names = [one.scraper for one in HostConfig().scrapers.configured()]
    assert "cpu" in names
    assert "process" not in names
    assert len(names) == 10


def test_a_configuration_of_the_opentelemetry_collector_is_valid() -> None:
    config = HostConfig.model_validate(
        {
            "collection_interval": "30s",
            "root_path": "/hostfs",
            "scrapers": {
                "cpu": {"metrics": {"system.cpu.utilization": {"enabled": False}}},
                "load": {"cpu_average": True},
                "memory": None,
                "filesystem": {
                    "exclude_mount_points": {"match_type": "regexp", "mount_points": ["^/var/lib/kubelet"]},
                    "include_fs_types": {"match_type": "strict", "fs_types": ["ext4", "nfs4"]},
                },
                "network": {"exclude": {"match_type": "strict", "interfaces": ["lo"]}},
                "process": {"include": {"match_type": "regexp", "names": ["python"]}, "mute_process_all_errors": True},
            },
        }
    )
    assert {one.scraper for one in config.scrapers.configured()} == {
        *("cpu", "load", "memory", "filesystem", "network", "process")
    }
    assert config.scrapers.cpu
    assert "system.cpu.utilization" not in config.scrapers.cpu.enabled()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"scrapers": {}}, "name at least one scraper"),
        ({"scrapers": {"gpu": None}}, "Extra inputs are not permitted"),
        ({"scrapers": {"cpu": {"metrics": {"system.cpu.tim": {"enabled": True}}}}}, "did you mean system.cpu.time?"),
        ({"scrapers": {"load": {"metrics": {"x": {"enabled": True}}}}}, "its metrics are system.cpu.load_average.1m"),
        ({"scrapers": {"disk": {"include": {"match_type": "regexp", "devices": ["("]}}}}, "not a regular expression"),
        ({"root_path": "hostfs"}, "must be an absolute path"),
        ({"collection_interval": "0s"}, "must be greater than 0"),
    ],
)
def test_a_mistake_is_named(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        HostConfig.model_validate(fields)
    assert words in str(refused.value)


def test_a_root_path_without_a_machine_stops_the_start() -> None:
    with pytest.raises(CannotStart, match="receivers::test::root_path: cannot read /nowhere/proc/stat: No such file"):
        receiver(None, Path("/nowhere")).scrape()
