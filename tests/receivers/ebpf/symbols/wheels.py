"""Reads files inside wheels of the package index without downloading the whole wheel."""

import io
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx

PLATFORMS = {
    arch: [f"{tag}_{arch}" for tag in ("manylinux1", "manylinux2014", *(f"manylinux_2_{n}" for n in range(17, 40)))]
    for arch in ("x86_64", "aarch64")
}
_PIECE = 8 << 20


def newest_of_each_minor(package: str, since: str) -> list[str]:
    """The versions in the index: the newest patch of each minor release, oldest first."""
    command = [sys.executable, "-m", "pip", "index", "versions", package]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    versions = re.search(r"Available versions: (.*)", listed)
    newest: dict[tuple[int, ...], str] = {}
    for version in versions[1].split(", ") if versions else ():
        if re.fullmatch(r"[\d.]+", version):  # skips local builds and post-releases
            newest.setdefault(_numbers(version)[:2], version)
    return [version for minor, version in sorted(newest.items()) if minor >= _numbers(since)]


def url_of(package: str, version: str, arch: str) -> str | None:
    """The URL from which pip would download the wheel; None if no wheel exists for this processor."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--dry-run", "--ignore-installed"]
    command += ["--only-binary=:all:", "--python-version", "3.11", "--target", "unused", "--report", "-"]
    command += [word for platform in PLATFORMS[arch] for word in ("--platform", platform)]
    result = subprocess.run([*command, f"{package}==={version}"], capture_output=True, text=True, check=False)
    return json.loads(result.stdout)["install"][0]["download_info"]["url"] if result.returncode == 0 else None


@contextmanager
def opened(url: str) -> Iterator[zipfile.ZipFile]:
    """Opens the wheel at a URL."""
    if urlsplit(url).scheme == "file":
        with zipfile.ZipFile(Path(unquote(urlsplit(url).path))) as wheel:
            yield wheel
        return
    with (
        httpx.Client(follow_redirects=True, timeout=60) as client,
        zipfile.ZipFile(io.BufferedReader(_Remote(client, url), _PIECE)) as wheel,
    ):
        yield wheel


class _Remote(io.RawIOBase):
    """A file on an HTTP server that supports range requests."""

    def __init__(self, client: httpx.Client, url: str) -> None:
        self._client, self._url, self._at = client, url, 0
        self._size = int(client.head(url).raise_for_status().headers["content-length"])

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # of all that io.pyi allows
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        answer = self._client.get(self._url, headers={"Range": f"bytes={self._at}-{end - 1}"}).raise_for_status()
        if answer.status_code != httpx.codes.PARTIAL_CONTENT:
            raise OSError("the index's file server does not support range requests")
        buffer[: len(answer.content)] = answer.content
        self._at += len(answer.content)
        return len(answer.content)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
