"""A target: its URL and its labels, after relabelling."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from otel_zernel.errors import ZernelError
from otel_zernel.otlp.points import AttributeValue
from otel_zernel.text import quoted, shown_url
from otel_zernel_receivers.prometheus.config.quantities import parse_long_duration
from otel_zernel_receivers.prometheus.config.scrape import ScrapeJobConfig
from otel_zernel_receivers.prometheus.pages.page import Labels
from otel_zernel_receivers.prometheus.relabelling.rules import RelabelRule, relabel

_PARAM = "__param_"
_ADDRESS, _SCHEME, _PATH = "__address__", "__scheme__", "__metrics_path__"
_INTERVAL, _TIMEOUT = "__scrape_interval__", "__scrape_timeout__"


class BadTarget(ZernelError):
    """A target that cannot be scraped. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """One page to scrape."""

    url: str
    labels: tuple[tuple[str, str], ...]
    """The labels of all its series, with `job` and `instance`, sorted."""
    interval: float
    """Seconds."""
    timeout: float
    """Seconds."""

    @property
    def shown(self) -> str:
        """The URL without its parameters, which may be secret, the job, and the instance if it is another name."""
        labels, url = dict(self.labels), shown_url(self.url)
        instance = labels.get("instance", "")
        named = "" if f"//{instance}/" in url else f", instance {instance}"
        return f"{url} (job {labels.get('job', '')}{named})"

    @property
    def about(self) -> Mapping[str, AttributeValue]:
        """The attributes of its resource."""
        parts = urlsplit(self.url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        return {"server.address": parts.hostname or "", "server.port": port, "url.scheme": parts.scheme}

    @property
    def offset(self) -> float:
        """A part of the interval, from 0 to 1: where in each interval the target is scraped. Spreads the load."""
        digest = sha256(repr((self.url, self.labels)).encode("utf-8", "replace")).digest()
        return int.from_bytes(digest[:8], "big") / 2**64


@dataclass(frozen=True, slots=True)
class TargetRules:
    """Makes targets from the labels that discovery finds."""

    job: ScrapeJobConfig
    rules: Sequence[RelabelRule]
    external_labels: Mapping[str, str]

    def targets(self, discovered: Iterable[Labels]) -> tuple[list[ScrapeTarget], list[str]]:
        """The targets, without those that relabelling drops, and the problems of bad ones."""
        targets: dict[ScrapeTarget, None] = {}
        problems: list[str] = []
        for labels in discovered:
            try:
                targets.update(dict.fromkeys(self._target(labels)))
            except (BadTarget, ValueError) as error:
                problems.append(f"job {self.job.job_name}: {error}")
        limit = self.job.target_limit
        if limit and len(targets) > limit:
            problems.append(
                f"job {self.job.job_name}: {len(targets)} targets, over target_limit: {limit}; none of them is scraped"
            )
            targets.clear()
        return list(targets), problems

    def _target(self, discovered: Labels) -> Iterator[ScrapeTarget]:
        """The target, if relabelling keeps it."""
        job = self.job
        labels = {
            "job": job.job_name,
            _SCHEME: job.scheme,
            _PATH: job.metrics_path,
            _INTERVAL: f"{job.scrape_interval:.9f}".rstrip("0").rstrip(".") + "s",
            _TIMEOUT: f"{job.scrape_timeout:.9f}".rstrip("0").rstrip(".") + "s",
            **{f"{_PARAM}{name}": values[0] for name, values in job.params.items() if values},
            **discovered,
        }
        kept = relabel(labels, self.rules)
        if kept is None:
            return
        address = kept.get(_ADDRESS, "")
        if not address:
            raise BadTarget("a target without an address: set the label __address__ to host:port")
        interval, timeout = parse_long_duration(kept.get(_INTERVAL)), parse_long_duration(kept.get(_TIMEOUT))
        if not 0 < timeout <= interval:
            raise BadTarget(f"target {quoted(address)}: its timeout must be greater than 0 and within its interval")
        own = {name: value for name, value in kept.items() if not name.startswith("__")}
        own.setdefault("instance", address)
        own = dict(self.external_labels) | own
        yield ScrapeTarget(self._url(address, kept), tuple(sorted(own.items())), interval, timeout)

    def _url(self, address: str, labels: Labels) -> str:
        scheme = labels.get(_SCHEME, "http")
        if scheme not in ("http", "https"):
            raise BadTarget(f"target {quoted(address)}: the scheme {quoted(scheme)} is neither http nor https")
        if not _is_address(f"{scheme}://{address}"):
            raise BadTarget(f"target {quoted(address)} is not an address: write host:port")
        params = {name: list(values) for name, values in self.job.params.items()}
        for label in (label for label in labels if label.startswith(_PARAM)):
            name = label.removeprefix(_PARAM)
            params[name] = [labels[label], *params.get(name, [])[1:]]
        path, _, query = labels.get(_PATH, "/metrics").partition("?")
        query = "&".join(filter(None, (query, urlencode(params, doseq=True))))
        return SplitResult(scheme, address, quote("/" + path.lstrip("/"), safe="/%:@!$&'()*+,;=~"), query, "").geturl()


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0 and not (parts.path or parts.query or parts.username)
    except ValueError:
        return False
