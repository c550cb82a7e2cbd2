"""A component can only name an extension that is enabled and of the right kind; the mistake names its path."""

import pytest

from otel_zernel.component import Extension
from otel_zernel.config.settings import Settings
from otel_zernel.errors import ConfigError
from otel_zernel_extensions.bearertokenauth import BearerTokenAuthExtension
from otel_zernel_receivers.otlp import OtlpReceiver
from tests.core.engine.journals import MemoryStorage
from tests.core.parts import PARTS, Parts, settings_of

PARTS_WITH_EXTENSIONS: Parts = {
    **PARTS,
    "receivers": {**PARTS["receivers"], "otlp": OtlpReceiver},
    "extensions": {"disk": MemoryStorage, "bearertokenauth": BearerTokenAuthExtension, "other": Extension},
}
CONFIG = """
receivers: {{source: , otlp: {{protocols: {{grpc: {{auth: {{authenticator: {authenticator}}}}}}}}}}}
exporters: {{sink: {{sending_queue: {{storage: {storage}}}}}, sink/unused: {{sending_queue: {{storage: nothing}}}}}}
extensions: {{disk: , disk/unused: , bearertokenauth: {{token: secret}}, other: }}
service:
  extensions: [disk, bearertokenauth, other]
  pipelines: {{metrics: {{receivers: [source, otlp], exporters: [sink]}}}}
"""
ENABLED = "(enabled: disk, bearertokenauth, other)"


def settings_naming(storage: str = "disk", authenticator: str = "bearertokenauth") -> Settings:
    text = CONFIG.format(storage=storage, authenticator=authenticator)
    return settings_of(text, PARTS_WITH_EXTENSIONS)


def test_an_enabled_extension_of_the_right_kind_may_be_named() -> None:
    settings = settings_naming()
    assert settings.exporters["sink"].config.sending_queue.storage == "disk"  # type: ignore[attr-defined]
    assert "bearertokenauth" in settings.extensions_enabled


@pytest.mark.parametrize(
    ("named", "path", "message"),
    [
        (
            {"storage": "disk/unused"},
            "exporters::sink::sending_queue::storage",
            f'extension "disk/unused" is not in service::extensions; add it {ENABLED}',
        ),
        (
            {"storage": "missing"},
            "exporters::sink::sending_queue::storage",
            f'extension "missing" is not in service::extensions; add it {ENABLED}',
        ),
        (
            {"storage": "other"},
            "exporters::sink::sending_queue::storage",
            'extension "other" cannot be used here; name a storage extension',
        ),
        (
            {"authenticator": "missing"},
            "receivers::otlp::protocols::grpc::auth::authenticator",
            f'extension "missing" is not in service::extensions; add it {ENABLED}',
        ),
        (
            {"authenticator": "other"},
            "receivers::otlp::protocols::grpc::auth::authenticator",
            'extension "other" cannot be used here; name an authenticator extension',
        ),
    ],
)
def test_any_other_extension_is_a_mistake_at_its_path(named: dict[str, str], path: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings_naming(**named)
    (problem,) = error.value.problems
    assert (problem.path, problem.message) == (path, message)
    assert problem.source  # the line of the file
