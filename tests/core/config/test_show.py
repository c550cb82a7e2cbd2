from typing import Any

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from otel_zernel.config.load import load
from otel_zernel.config.schema import validate
from otel_zernel.config.show import dump, show
from otel_zernel.config.yaml12 import read_yaml
from tests.core.config.components import MINIMAL, REGISTRY, settings_of


def shown(*texts: str, environ: dict[str, str] | None = None, redacted: bool = True) -> str:
    loaded = load([f"yaml:{text}" for text in texts], (), environ or {})
    return show(loaded, validate(loaded, REGISTRY, environ or {}), redacted)


def test_configured_values_are_shown_in_the_notation_of_users() -> None:
    text = "receivers: {in: {interval: 90s}}\nexporters: {out: {listen: ':80'}}\nprocessors: {}"
    tree = yaml.safe_load(shown(MINIMAL, text))
    assert tree == {
        "receivers": {"in": {"interval": "90s"}},
        "processors": {},
        "exporters": {"out": {"endpoint": "here", "listen": ":80"}},
        "service": {"pipelines": {"training": {"receivers": ["in"], "exporters": ["out"]}}},
    }


def test_defaults_taken_from_the_environment_are_shown() -> None:
    text = MINIMAL.replace("{endpoint: here}", "")
    assert "endpoint: there" in shown(text, environ={"OTEL_ENDPOINT": "there"})


SECRETS = """
exporters: {out: {headers: {a: "hunter2$$"}}, out/2: {endpoint: x, token: hunter2}}
service:
  telemetry: {metrics: {readers: [{periodic: {exporter: {otlp: {headers: {a: hunter2}}}}}]}}
"""


def test_secrets_are_redacted_by_default() -> None:
    assert shown(MINIMAL, SECRETS).count("[REDACTED]") == 3
    assert "hunter2" not in shown(MINIMAL, SECRETS)
    assert shown(MINIMAL, SECRETS, redacted=False).count("hunter2") == 3


def test_users_and_queries_of_urls_are_redacted_by_default() -> None:
    """Fault 20: a token in a query was printed."""
    url = "https://ada:hunter2@host:4318/v1?token=hunter2&to=hunter2#x"
    text = f"exporters: {{out: {{endpoint: '{url}'}}}}"
    assert "https://[REDACTED]@host:4318/v1?token=[REDACTED]&to=[REDACTED]#x" in shown(MINIMAL, text)
    assert url in shown(MINIMAL, text, redacted=False)


def test_the_unredacted_text_gives_the_same_settings() -> None:
    texts = (MINIMAL, SECRETS, "receivers: {in: {tags: ['a$$b', '1e3', '$${x}', '0o17', 'yes', '']}}")
    assert settings_of(shown(*texts, redacted=False)) == settings_of(*texts)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(["yes", "1e3", "0o17", "10:30", "~", "", "0x1", ".5", "1.", "+1", "=", "<<", "2001-01-01"])
)
TREES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text("ab1<~ "), inner), max_leaves=10)


@given(TREES)
@example("\x85")
@example(["a\u2028b", "\u2029"])
def test_a_dumped_tree_is_read_as_the_same_tree(tree: Any) -> None:
    assert read_yaml(dump(tree), "x").value == tree
