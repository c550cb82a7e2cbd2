"""The targets of a job: their URLs and labels, from the configuration, files and DNS.

The actions of relabelling, with the cases of Prometheus' documentation.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_zernel.config.load import load
from otel_zernel.config.schema import validate
from otel_zernel.errors import ConfigError
from otel_zernel.registry import Registry
from otel_zernel_receivers.prometheus.config import PrometheusReceiverConfig
from otel_zernel_receivers.prometheus.config.relabel import RelabelConfig
from otel_zernel_receivers.prometheus.config.scrape import DnsDiscoveryConfig, FileDiscoveryConfig
from otel_zernel_receivers.prometheus.discovery.sources import DnsSource, FileSource
from otel_zernel_receivers.prometheus.discovery.targets import ScrapeTarget
from otel_zernel_receivers.prometheus.relabelling.rules import relabel, relabel_rules
from tests.receivers.prometheus.parts import job_of, target_rules


def targets(*found: dict[str, str], **job: Any) -> list[ScrapeTarget]:
    made, problems = target_rules(**job).targets(found)
    assert problems == []
    return made


def test_a_target_has_url_labels_and_times() -> None:
    (target,) = targets({"__address__": "host:9400", "zone": "z"}, scrape_interval="15s")
    assert target.url == "http://host:9400/metrics"
    assert dict(target.labels) == {"job": "test", "instance": "host:9400", "zone": "z"}
    assert (target.interval, target.timeout) == (15, 10)


def test_the_url_has_scheme_path_and_parameters() -> None:
    job = {"scheme": "https", "metrics_path": "probe path?a=b", "params": {"m": ["x&y", "z"], "n": ["1"]}}
    (target,) = targets({"__address__": "[::1]:1", "__param_n": "2"}, **job)
    assert target.url == "https://[::1]:1/probe%20path?a=b&m=x%26y&m=z&n=2"
    assert target.about == {"server.address": "::1", "server.port": 1, "url.scheme": "https"}


def test_relabelling_may_change_everything_about_a_target() -> None:
    rules = [
        {"source_labels": ["__address__"], "target_label": "__param_target"},
        {"source_labels": ["__param_target"], "target_label": "instance"},
        {"target_label": "__address__", "replacement": "prober:9115"},
        {"target_label": "__metrics_path__", "replacement": "/probe"},
        {"target_label": "__scheme__", "replacement": "https"},
        {"target_label": "__scrape_interval__", "replacement": "1m"},
        {"target_label": "__scrape_timeout__", "replacement": "2s"},
        {"target_label": "job", "replacement": "probe"},
    ]
    (target,) = targets({"__address__": "site"}, relabel_configs=rules)
    assert target.url == "https://prober:9115/probe?target=site"
    assert dict(target.labels) == {"job": "probe", "instance": "site"}
    assert (target.interval, target.timeout) == (60, 2)


def test_targets_are_dropped_by_rules_and_equal_ones_are_one() -> None:
    rule = {"source_labels": ["__address__"], "regex": "a.*", "action": "keep"}
    found = [{"__address__": one} for one in ("a:1", "b:1", "a:1")]
    assert [target.url for target in targets(*found, relabel_configs=[rule])] == ["http://a:1/metrics"]


@pytest.mark.parametrize(
    ("found", "job", "problem"),
    [
        ({"__address__": "a/b"}, {}, "is not an address: write host:port"),
        ({"__address__": "a:x"}, {}, "is not an address"),
        ({"__address__": "u:p@a:1"}, {}, "is not an address"),
        ({}, {}, "without an address"),
        ({"__address__": "a:1", "__scheme__": "ftp"}, {}, "neither http nor https"),
        ({"__address__": "a:1", "__scrape_timeout__": "1h"}, {}, "within its interval"),
        ({"__address__": "a:1", "__scrape_interval__": "soon"}, {}, "not a duration"),
    ],
)
def test_a_bad_target_is_one_sentence_and_costs_no_other(
    found: dict[str, str], job: dict[str, Any], problem: str
) -> None:
    made, problems = target_rules(**job).targets([found, {"__address__": "good:1"}])
    assert [one.url for one in made] == ["http://good:1/metrics"]
    assert len(problems) == 1
    assert problem in problems[0]
    assert problems[0].startswith("job test: ")


def test_too_many_targets_are_none() -> None:
    made, problems = target_rules(target_limit=1).targets([{"__address__": "a:1"}, {"__address__": "b:1"}])
    assert made == []
    assert "2 targets, over target_limit: 1" in problems[0]


def test_offsets_spread_and_stay() -> None:
    found = [{"__address__": f"host-{n}:1"} for n in range(1000)]
    offsets = [target.offset for target in targets(*found)]
    assert offsets == [target.offset for target in targets(*found)]
    assert all(80 < sum(low <= offset < low + 0.1 for offset in offsets) < 120 for low in (0.0, 0.3, 0.6, 0.9))


async def test_files_are_read_again_when_they_change_and_keep_their_targets_while_broken(tmp_path: Path) -> None:
    source = FileSource(FileDiscoveryConfig(files=[f"{tmp_path}/*.json", f"{tmp_path}/*.yml"]))
    assert await source.targets(0) == []
    assert "no file matches" in source.problems[0]
    (tmp_path / "a.json").write_text('[{"targets": ["a:1", "b:2"], "labels": {"zone": "z", "n": 1}}]')
    (tmp_path / "b.yml").write_text("- targets: [c:3]\n")
    targets = await source.targets(1)
    assert [target["__address__"] for target in targets] == ["a:1", "b:2", "c:3"]
    assert targets[0] == {"__address__": "a:1", "zone": "z", "n": "1", "__meta_filepath": f"{tmp_path}/a.json"}
    assert source.problems == []
    (tmp_path / "a.json").write_text("[{")
    assert len(await source.targets(2)) == 3
    assert "the former ones stay" in source.problems[0]
    (tmp_path / "a.json").unlink()
    assert [target["__address__"] for target in await source.targets(3)] == ["c:3"]


@pytest.mark.parametrize("text", ['{"targets": []}', '[{"labels": {}}]', '[["a:1"]]', '"a:1"', '[{"targets": "a:1"}]'])
async def test_a_file_of_another_form_is_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(text)
    source = FileSource(FileDiscoveryConfig(files=[f"{tmp_path}/a.json"]))
    assert await source.targets(0) == []
    assert len(source.problems) == 1


async def test_the_addresses_of_a_name_are_targets() -> None:
    source = DnsSource(DnsDiscoveryConfig(names=["localhost"], type="A", port=9400))
    assert await source.targets(0) == [{"__address__": "127.0.0.1:9400", "__meta_dns_name": "localhost"}]
    missing = DnsSource(DnsDiscoveryConfig(names=["no-such-host.invalid"], type="A", port=1))
    assert await missing.targets(0) == []
    assert "cannot resolve no-such-host.invalid" in missing.problems[0]


def test_jobs_have_the_defaults_of_global() -> None:
    config = PrometheusReceiverConfig.model_validate(
        {
            "config": {
                "global": {"scrape_interval": "5s", "sample_limit": 7, "body_size_limit": 0},
                "scrape_configs": [{"job_name": "a"}, {"job_name": "b", "scrape_interval": "1d", "sample_limit": 0}],
            }
        }
    )
    first, second = config.config.jobs
    assert (first.scrape_interval, first.scrape_timeout, first.sample_limit) == (5, 5, 7)
    assert (second.scrape_interval, second.scrape_timeout, second.sample_limit) == (86400, 10, 0)
    assert first.body_size_limit == 64 << 20
    assert job_of("a:1", body_size_limit="10MB").body_size_limit == 10 << 20


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        ({"static_configs": [{"targets": ["http://a:1"]}]}, "write host:port"),
        ({"static_configs": [{"targets": ["a", "[::1]:80", "[::1]", "a:99999"]}]}, "'a:99999' has no valid port"),
        ({"static_configs": [{"targets": ["a:x"]}]}, "'a:x' has no valid port"),
        ({"scrape_timeout": "2m", "scrape_interval": "1m"}, "must not be longer than scrape_interval"),
        ({"scrape_interval": "0s"}, "greater than 0"),
        ({"basic_auth": {}, "bearer_token": "x"}, "exclude each other"),
        ({"authorization": {"type": "basic"}}, "use basic_auth"),
        ({"tls_config": {"cert_file": "a"}}, "belong together"),
        ({"file_sd_configs": [{"files": ["a.txt"]}]}, "must end with"),
        ({"dns_sd_configs": [{"names": ["a"], "type": "SRV", "port": 1}]}, "type"),
        ({"body_size_limit": "large"}, "not a size"),
        ({"scrape_protocols": ["Text"]}, "scrape_protocols"),
        ({"kubernetes_sd_configs": []}, "write targets for file_sd_configs, or use dns_sd_configs"),
        ({"consul_sd_configs": []}, "write targets for file_sd_configs, or use dns_sd_configs"),
        ({"proxy_url": "proxy:1"}, "not the URL of a proxy"),
    ],
)
def test_a_wrong_option_is_one_sentence_with_its_path(job: dict[str, Any], problem: str) -> None:
    settings = {"config": {"scrape_configs": [{"job_name": "a", **job}]}}
    text = yaml.safe_dump({"receivers": {"prometheus": settings}})
    with pytest.raises(ConfigError) as refused:
        validate(load([f"yaml:{text}"], [], {}), Registry.installed(), {})
    strs = [str(problem) for problem in refused.value.problems if "receivers::prometheus" in str(problem)]
    assert len(strs) == 1
    assert problem in strs[0]


def test_two_jobs_of_one_name_are_an_error() -> None:
    with pytest.raises(ValueError, match="'a' is used 2 times"):
        PrometheusReceiverConfig.model_validate({"config": {"scrape_configs": [{"job_name": "a"}] * 2}})


def test_secrets_are_never_printed() -> None:
    job = job_of("a:1", basic_auth={"username": "u", "password": "hush"}, http_headers={"X-Key": ["hush"]})
    assert "hush" not in repr(job)
    assert "hush" not in str(job.model_dump())


LABELS = {"a": "foo", "b": "bar", "c": "baz"}


def changed(*rules: dict[str, Any], labels: dict[str, str] | None = None) -> dict[str, str] | None:
    compiled = relabel_rules([RelabelConfig.model_validate(rule) for rule in rules])
    return relabel(labels or LABELS, compiled)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"source_labels": ["a"], "regex": "f(.*)", "target_label": "d", "replacement": "ch${1}-$1"}, {"d": "choo-oo"}),
        ({"source_labels": ["a", "b"], "target_label": "d"}, {"d": "foo;bar"}),
        ({"source_labels": ["a", "b"], "separator": "", "target_label": "d"}, {"d": "foobar"}),
        ({"source_labels": ["a"], "regex": "oo", "target_label": "d"}, {}),
        ({"source_labels": ["a"], "regex": "no", "target_label": "b", "replacement": "x"}, {}),
        ({"target_label": "d", "replacement": "constant"}, {"d": "constant"}),
        ({"target_label": "a", "replacement": ""}, {"a": ""}),
        ({"source_labels": ["a"], "regex": "(f)(?P<n>.*)", "target_label": "${1}x", "replacement": "$n"}, {"fx": "oo"}),
        ({"source_labels": ["a"], "regex": "(.*)", "target_label": "0$1"}, {}),
        ({"source_labels": ["a"], "action": "uppercase", "target_label": "d"}, {"d": "FOO"}),
        ({"source_labels": ["a"], "action": "Lowercase", "target_label": "d"}, {"d": "foo"}),
        ({"regex": "(b)", "action": "labelmap", "replacement": "x_${1}"}, {"x_b": "bar"}),
        ({"regex": "a|c", "action": "labeldrop"}, {"a": "", "c": ""}),
        ({"regex": "b", "action": "labelkeep"}, {"a": "", "c": ""}),
        # The value is that of Prometheus' own test.
        ({"source_labels": ["c"], "action": "hashmod", "modulus": 1000, "target_label": "d"}, {"d": "976"}),
    ],
)
def test_an_action_changes_labels(rule: dict[str, Any], expected: dict[str, str]) -> None:
    assert changed(rule) == {name: value for name, value in (LABELS | expected).items() if value}


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        ({"source_labels": ["a"], "regex": "foo", "action": "keep"}, True),
        ({"source_labels": ["a"], "regex": "fo", "action": "keep"}, False),
        ({"source_labels": ["a"], "regex": "foo", "action": "drop"}, False),
        ({"source_labels": ["a"], "regex": ".*o", "action": "drop"}, False),
        ({"source_labels": ["a"], "regex": "o", "action": "drop"}, True),
        ({"source_labels": ["missing"], "regex": "", "action": "keep"}, True),
        ({"source_labels": ["a"], "target_label": "a", "action": "keepequal"}, True),
        ({"source_labels": ["a"], "target_label": "b", "action": "keepequal"}, False),
        ({"source_labels": ["a"], "target_label": "a", "action": "dropequal"}, False),
        ({"source_labels": ["a"], "target_label": "b", "action": "dropequal"}, True),
    ],
)
def test_an_action_keeps_or_drops(rule: dict[str, Any], kept: bool) -> None:
    assert (changed(rule) is not None) is kept


def test_rules_run_in_order_and_a_drop_ends_them() -> None:
    first = {"source_labels": ["a"], "target_label": "d", "replacement": "x"}
    assert changed(first, {"source_labels": ["d"], "regex": "x", "action": "drop"}) is None
    assert changed(first, {"source_labels": ["d"], "target_label": "e"}) == {**LABELS, "d": "x", "e": "x"}


def test_an_expression_of_exponential_time_for_others_ends_at_once() -> None:
    assert changed({"source_labels": ["a"], "regex": "(x+x+)+y", "action": "drop"}, labels={"a": "x" * 50_000})


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ({"regex": "("}, "not a regular expression"),
        ({"action": "hashmod", "target_label": "a"}, "modulus"),
        ({"action": "replace"}, "target_label"),
        ({"action": "labeldrop", "source_labels": ["a"]}, "remove source_labels"),
        ({"action": "keepequal", "target_label": "a"}, "source_labels"),
        ({"action": "vanish"}, "action"),
    ],
)
def test_a_wrong_rule_is_one_sentence(rule: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        RelabelConfig.model_validate(rule)
