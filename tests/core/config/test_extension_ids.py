"""A component can only name an extension that is enabled and of the right kind; the mistake names its path."""

import pytest

from otel_zernel.component import Extension
from otel_zernel.errors import ConfigError
from otel_zernel_extensions.bearertokenauth import BearerTokenAuthExtension
from otel_zernel_receivers.otlp import OtlpReceiver
from tests.core.engine.journals import MemoryStorage
from tests.core.parts import PARTS, Parts, settings_of

PARTS_WITH_EXTENSIONS: Parts = {**PARTS, "extensions": {"disk": MemoryStorage, "other": Extension}}
CONFIG = """
receivers: {{source: }}
exporters: {{sink: {{sending_queue: {{storage: {storage}}}}}, sink/unused: {{sending_queue: {{storage: nothing}}}}}}
extensions: {{disk: , disk/unused: , other: }}
service:
  extensions: [disk, other]
  pipelines: {{metrics: {{receivers: [source], exporters: [sink]}}}}
"""


def test_an_enabled_storage_extension_may_be_named() -> None:
    settings = settings_of(CONFIG.format(storage="disk"), PARTS_WITH_EXTENSIONS)
    assert settings.exporters["sink"].config.sending_queue.storage == "disk"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ("disk/unused", 'extension "disk/unused" is not in service::extensions; add it (enabled: disk, other)'),
        ("missing", 'extension "missing" is not in service::extensions; add it (enabled: disk, other)'),
        ("other", 'extension "other" cannot be used here; name a storage extension'),
    ],
)
def test_any_other_extension_is_a_mistake_at_its_path(storage: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings_of(CONFIG.format(storage=storage), PARTS_WITH_EXTENSIONS)
    (problem,) = error.value.problems
    assert (problem.path, problem.message) == ("exporters::sink::sending_queue::storage", message)
    assert problem.source  # the line of the file


AUTHENTICATED = """
receivers: {{otlp: {{protocols: {{grpc: {{auth: {{authenticator: {authenticator}}}}}}}}}}}
exporters: {{sink: }}
extensions: {{bearertokenauth: {{token: secret}}, other: }}
service:
  extensions: [bearertokenauth, other]
  pipelines: {{metrics: {{receivers: [otlp], exporters: [sink]}}}}
"""
PARTS_WITH_AUTHENTICATION: Parts = {
    **PARTS,
    "receivers": {"otlp": OtlpReceiver},
    "extensions": {"bearertokenauth": BearerTokenAuthExtension, "other": Extension},
}


def test_an_enabled_authenticator_may_be_named() -> None:
    settings = settings_of(AUTHENTICATED.format(authenticator="bearertokenauth"), PARTS_WITH_AUTHENTICATION)
    assert "bearertokenauth" in settings.extensions_enabled


@pytest.mark.parametrize(
    ("authenticator", "message"),
    [
        ("missing", 'extension "missing" is not in service::extensions; add it (enabled: bearertokenauth, other)'),
        ("other", 'extension "other" cannot be used here; name an authenticator extension'),
    ],
)
def test_any_other_authenticator_is_a_mistake_at_its_path(authenticator: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings_of(AUTHENTICATED.format(authenticator=authenticator), PARTS_WITH_AUTHENTICATION)
    (problem,) = error.value.problems
    assert (problem.path, problem.message) == ("receivers::otlp::protocols::grpc::auth::authenticator", message)
