"""A configuration without pipelines is valid with an extension that works alone, and only then."""

import json

import pytest

from otel_zernel.config.schema import Settings, read_settings
from otel_zernel.errors import ConfigError
from otel_zernel.registry import Registry


def settings_with(*enabled: str) -> Settings:
    tree = {
        "extensions": {"api": {"endpoint": "localhost:0"}, "query": {"url": "sqlite:///tmp/x.db"}},
        "service": {"extensions": [*enabled]},
    }
    return read_settings([f"yaml:{json.dumps(tree)}"], [], {}, Registry.installed())


def test_the_query_extension_needs_no_pipelines() -> None:
    assert settings_with("api", "query").pipelines == {}


@pytest.mark.parametrize("enabled", [(), ("api",)])
def test_other_extensions_need_a_pipeline(enabled: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="service::pipelines: must have at least one pipeline"):
        settings_with(*enabled)
