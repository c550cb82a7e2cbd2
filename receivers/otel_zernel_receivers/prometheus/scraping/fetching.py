"""Fetches the pages of one job over HTTP, with a limit on their size."""

import asyncio
import base64
import ssl
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from otel_zernel import __version__
from otel_zernel_libraries.files.writing import file_with
from otel_zernel_receivers.prometheus.config.http import ScrapeTlsConfig
from otel_zernel_receivers.prometheus.config.scrape import ScrapeJobConfig
from otel_zernel_receivers.prometheus.discovery.targets import ScrapeTarget
from otel_zernel_receivers.prometheus.pages.formats import accept_header
from otel_zernel_receivers.prometheus.scraping.failures import ScrapeFailed, connection_failure, status_failure

if TYPE_CHECKING:  # importing httpx takes 100 ms, and validation does not need it
    import httpx

_REDIRECTS = 10
"""As in Go."""
_MOST_MEMBERS = 100
"""Parts of a gzip body."""
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """An answer, as it was sent."""

    body: bytes
    content_type: str
    compressed: bool


class PageFetcher:
    """The HTTP client of a job."""

    def __init__(self, job: ScrapeJobConfig) -> None:
        self._job = job
        self._client: httpx.AsyncClient | None = None
        self._signature: Sequence[tuple[int, int]] = ()
        """The state of the TLS files."""
        self._lock = asyncio.Lock()
        self._headers = {
            "user-agent": f"otel-zernel/{__version__}",
            "accept": accept_header(job.protocols),
            "accept-encoding": "gzip" if job.enable_compression else "identity",
        }

    async def prepare(self) -> None:
        """Loads the libraries and the certificates, which takes too long for the timeout of the first scrape.

        Raises `ScrapeFailed` if the certificates are not usable.
        """
        await asyncio.to_thread(import_module, "httpx")
        await self._open()

    async def close(self) -> None:
        """Closes all connections. Safe to call twice."""
        client, self._client = self._client, None
        if client:
            await client.aclose()

    async def fetch(self, target: ScrapeTarget) -> FetchedPage:
        """The page of a target. Raises `ScrapeFailed`. The caller bounds the time."""
        import httpx

        client = await self._open()
        headers = self._headers | {"x-prometheus-scrape-timeout-seconds": f"{target.timeout:g}"}
        secrets = await asyncio.to_thread(self._credentials)
        request = client.build_request("GET", target.url, headers=[*headers.items(), *secrets])
        try:
            for _ in range(_REDIRECTS + 1):
                response = await client.send(request, stream=True)
                try:
                    if not (self._job.follow_redirects and response.next_request):
                        return await self._receive(response)
                finally:
                    await response.aclose()
                request = _redirected(request, response.next_request, [name for name, _ in secrets])
        except (httpx.TransportError, httpx.InvalidURL, httpx.RemoteProtocolError) as error:
            raise connection_failure(error, target.url) from error
        raise ScrapeFailed(f"more than {_REDIRECTS} redirects", "redirects")

    async def _receive(self, response: "httpx.Response") -> FetchedPage:
        if response.status_code != 200:
            raise status_failure(response.status_code, response.reason_phrase)
        encoding = response.headers.get("content-encoding", "identity").lower()
        if encoding not in ("gzip", "identity", ""):
            raise ScrapeFailed(f"the answer is compressed with {encoding}, which was not asked for", "page")
        parts, size, limit = [], 0, self._job.body_size_limit
        async for part in response.aiter_raw():
            size += len(part)
            if size > limit:
                raise too_large(limit)
            parts.append(part)
        return FetchedPage(b"".join(parts), response.headers.get("content-type", ""), encoding == "gzip")

    async def _open(self) -> "httpx.AsyncClient":
        """The client. A new one if the files of TLS have changed."""
        files = self._job.tls_config.files
        if self._client and not files:
            return self._client
        async with self._lock:
            signature = await asyncio.to_thread(_signature, files)
            if self._client and signature == self._signature:
                return self._client
            try:
                security = await asyncio.to_thread(_security, self._job.tls_config)
            except (OSError, ValueError) as error:
                if self._client:  # the old certificates stay in use until the new ones are complete
                    return self._client
                raise ScrapeFailed(f"tls_config is not usable: {error}", "tls") from error
            former, self._client, self._signature = self._client, self._connect(security), signature
            if former:
                await former.aclose()
            return self._client

    def _connect(self, security: ssl.SSLContext) -> "httpx.AsyncClient":
        import httpx

        return httpx.AsyncClient(
            verify=security,
            timeout=httpx.Timeout(None),  # the scrape has a timeout
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=300),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # a target could fill the memory with cookies
            follow_redirects=False,
            trust_env=self._job.proxy_from_environment,
            proxy=self._job.proxy_url,
        )

    def _credentials(self) -> list[tuple[str, str]]:
        """The headers that are secret. Raises `ScrapeFailed` if a file cannot be read."""
        job = self._job
        headers = [(name, value.get_secret_value()) for name, values in job.http_headers.items() for value in values]
        if basic := job.basic_auth:
            user = basic.username or _read(basic.username_file)
            password = basic.password.get_secret_value() if basic.password else _read(basic.password_file)
            token = base64.b64encode(f"{user}:{password}".encode()).decode()
            headers.append(("authorization", f"Basic {token}"))
        elif given := job.authorization:
            text = given.credentials.get_secret_value() if given.credentials else _read(given.credentials_file)
            headers.append(("authorization", f"{given.type} {text}"))
        elif job.bearer_token or job.bearer_token_file:
            text = job.bearer_token.get_secret_value() if job.bearer_token else _read(job.bearer_token_file)
            headers.append(("authorization", f"Bearer {text}"))
        return headers


def _redirected(request: "httpx.Request", following: "httpx.Request | None", secrets: Sequence[str]) -> "httpx.Request":
    """The request to the new place. Another host, port or scheme gets no credentials."""
    assert following is not None  # noqa: S101  # the answer is a redirect
    if (following.url.scheme, following.url.netloc) != (request.url.scheme, request.url.netloc):
        for name in secrets:
            following.headers.pop(name, None)
    return following


def _read(file: str | None) -> str:
    try:
        return Path(file).read_text("utf-8").strip() if file else ""
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ScrapeFailed(f"cannot read the credentials in {file}: {reason}", "credentials") from error


def _signature(files: Sequence[str]) -> Sequence[tuple[int, int]]:
    try:
        return [(status.st_mtime_ns, status.st_ino) for status in (Path(file).stat() for file in files)]
    except OSError:
        return ()


def _security(config: ScrapeTlsConfig) -> ssl.SSLContext:
    """The TLS context. Raises `OSError` (with `SSLError`) for unusable files."""
    context = ssl.create_default_context(cafile=config.ca_file, cadata=config.ca)
    context.minimum_version = _VERSIONS[config.min_version]
    if config.max_version:
        context.maximum_version = _VERSIONS[config.max_version]
    if config.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = Path(config.cert_file).read_bytes() if config.cert_file else (config.cert or "").encode()
    given_key = config.key.get_secret_value() if config.key else ""
    key = Path(config.key_file).read_bytes() if config.key_file else given_key.encode()
    if certificate:
        with file_with(certificate) as certificate_file, file_with(key) as key_file:
            context.load_cert_chain(certificate_file, key_file, password="")  # else OpenSSL would prompt for one
    return context


def too_large(limit: int) -> ScrapeFailed:
    """A page beyond `body_size_limit`."""
    return ScrapeFailed(f"the page is larger than body_size_limit: {limit:,} bytes", "limit")


def uncompressed(page: FetchedPage, limit: int) -> bytes:
    """The page as text or protobuf, of at most `limit` bytes. Raises `ScrapeFailed`."""
    if not page.compressed:
        return page.body
    parts: list[bytes] = []
    size, rest = 0, page.body
    for _ in range(_MOST_MEMBERS):  # gzip may have several members
        decompressor = zlib.decompressobj(31)
        try:
            parts.append(decompressor.decompress(rest, limit + 1 - size))
        except zlib.error as error:
            raise ScrapeFailed(f"the answer is damaged gzip: {error}", "page") from error
        size += len(parts[-1])
        if size > limit:
            raise too_large(limit)
        if not decompressor.eof:
            raise ScrapeFailed("the answer is gzip that is cut off", "page")
        rest = decompressor.unused_data
        if not rest:
            return b"".join(parts)
    raise ScrapeFailed(f"the answer is gzip of more than {_MOST_MEMBERS} members", "page")
