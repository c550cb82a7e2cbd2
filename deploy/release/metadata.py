"""The metadata that depend on where the package is published. Hatchling calls this when it builds a package.

`OTEL_ZERNEL_REPOSITORY` is the address of the repository. With it, the links of the README lead to the files of this
version, and the package names its pages. Without it, the README has no links to files: a package's page could not
follow them.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")


class PublishedMetadata(MetadataHookInterface):  # type: ignore[misc]  # hatchling may be missing
    """Adds `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        repository = os.environ.get("OTEL_ZERNEL_REPOSITORY", "").rstrip("/")
        root = Path(self.root)
        text = (root / "README.md").read_text("utf-8")
        files = f"{repository}/blob/v{metadata['version']}" if repository else ""
        metadata["readme"] = {"content-type": "text/markdown", "text": published_text(text, files)}
        if repository:
            metadata["urls"] = project_urls(repository, files)


def published_text(text: str, files: str) -> str:
    """The Markdown with links to `files`, an address, in place of paths; with their texts alone without an address."""

    def published(link: re.Match[str]) -> str:
        if not files:
            return link[2]
        address = files.replace("/blob/", "/raw/", 1) if link[1] else files
        return f"{link[1]}[{link[2]}]({address}/{link[3]})"

    return _LINK.sub(published, text)


def project_urls(repository: str, files: str) -> Mapping[str, str]:
    """The pages of the project, by what an index calls them."""
    return {
        "Documentation": f"{files}/docs/tutorial.md",
        "Changelog": f"{files}/CHANGELOG.md",
        "Source": repository,
        "Issues": f"{repository}/issues",
    }
