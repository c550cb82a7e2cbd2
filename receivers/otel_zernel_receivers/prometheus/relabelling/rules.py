"""Prometheus' relabelling: https://prometheus.io/docs/prometheus/latest/configuration/configuration/#relabel_config."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5

from otel_zernel_libraries.conditions.patterns import Pattern, expand
from otel_zernel_receivers.prometheus.config.relabel import RelabelAction, RelabelConfig
from otel_zernel_receivers.prometheus.pages.page import Labels

_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class RelabelRule:
    """One rule with its compiled expression."""

    config: RelabelConfig
    pattern: Pattern

    @classmethod
    def of(cls, config: RelabelConfig) -> "RelabelRule":
        """The expression matches whole texts."""
        return cls(config, Pattern(f"^(?s:{config.regex})$"))

    def expand(self, template: str, text: str) -> str | None:
        """The template with the groups of the expression in the text. None if it does not match."""
        groups = self.pattern.groups_in(text)
        return None if groups is None else expand(template, self.pattern.names, groups)


def relabel_rules(configs: Sequence[RelabelConfig]) -> tuple[RelabelRule, ...]:
    """The rules, compiled."""
    return tuple(map(RelabelRule.of, configs))


def relabel(labels: Mapping[str, str], rules: Sequence[RelabelRule]) -> Labels | None:
    """The labels after all rules, without empty ones. None if a rule drops them."""
    result = dict(labels)
    for rule in rules:
        if not _ACTIONS[rule.config.action](rule, result, _joined(rule.config, result)):
            return None
    return {name: value for name, value in result.items() if value}


def _joined(config: RelabelConfig, labels: Labels) -> str:
    return config.separator.join(labels.get(name, "") for name in config.source_labels)


def _replace(rule: RelabelRule, labels: Labels, text: str) -> bool:
    target = rule.expand(rule.config.target_label, text)
    if target is None or not _LABEL_NAME.fullmatch(target):
        return True
    labels[target] = rule.expand(rule.config.replacement, text) or ""
    return True


def _keep(rule: RelabelRule, labels: Labels, text: str) -> bool:
    return rule.pattern.is_found_in(text)


def _drop(rule: RelabelRule, labels: Labels, text: str) -> bool:
    return not rule.pattern.is_found_in(text)


def _keep_equal(rule: RelabelRule, labels: Labels, text: str) -> bool:
    return labels.get(rule.config.target_label, "") == text


def _drop_equal(rule: RelabelRule, labels: Labels, text: str) -> bool:
    return labels.get(rule.config.target_label, "") != text


def _hash(rule: RelabelRule, labels: Labels, text: str) -> bool:
    # Prometheus' hash: the last 8 bytes of MD5, so that shards agree.
    digest = md5(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).digest()
    labels[rule.config.target_label] = str(int.from_bytes(digest[8:], "big") % rule.config.modulus)
    return True


def _map(rule: RelabelRule, labels: Labels, text: str) -> bool:
    for name, value in list(labels.items()):
        if new := rule.expand(rule.config.replacement, name):
            labels[new] = value
    return True


def _label_drop(rule: RelabelRule, labels: Labels, text: str) -> bool:
    for name in [name for name in labels if rule.pattern.is_found_in(name)]:
        del labels[name]
    return True


def _label_keep(rule: RelabelRule, labels: Labels, text: str) -> bool:
    for name in [name for name in labels if not rule.pattern.is_found_in(name)]:
        del labels[name]
    return True


def _lower(rule: RelabelRule, labels: Labels, text: str) -> bool:
    labels[rule.config.target_label] = text.lower()
    return True


def _upper(rule: RelabelRule, labels: Labels, text: str) -> bool:
    labels[rule.config.target_label] = text.upper()
    return True


_ACTIONS: Mapping[RelabelAction, Callable[[RelabelRule, Labels, str], bool]] = {
    "replace": _replace,
    "keep": _keep,
    "drop": _drop,
    "keepequal": _keep_equal,
    "dropequal": _drop_equal,
    "hashmod": _hash,
    "labelmap": _map,
    "labeldrop": _label_drop,
    "labelkeep": _label_keep,
    "lowercase": _lower,
    "uppercase": _upper,
}
"""Each changes the labels in place and returns whether they stay."""
