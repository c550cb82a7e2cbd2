"""The optional packages. An extra of pyproject.toml installs them for a role."""

import importlib.util
from collections.abc import Mapping
from typing import Final

_PACKAGES: Final[Mapping[str, tuple[str, str]]] = {
    "asyncpg": ("asyncpg", "store"),
    "bcrypt": ("bcrypt", "gateway"),
    "confluent_kafka": ("confluent-kafka", "kafka"),
    "cramjam": ("cramjam", "gateway"),
    "mcp": ("mcp", "mcp"),
    "passlib": ("libpass", "gateway"),
    "pyarrow": ("pyarrow", "csv"),
    "re2": ("google-re2", "gateway"),
    "swagger_ui_bundle": ("swagger-ui-bundle-v2", "store"),
    "websockets": ("websockets", "gateway"),
    "xxhash": ("xxhash", "kafka"),
}
"""The package and the extra of each module."""


def missing_packages(user: str, *modules: str) -> str | None:
    """One sentence that says what to install for `user`, such as `the kafka receiver`; None if the modules are there.

    All modules are of one extra. None is imported.
    """
    if all(importlib.util.find_spec(module) for module in modules):
        return None
    packages = " and ".join(_PACKAGES[module][0] for module in modules)
    return f"{user} needs {packages}: pip install 'otel-zernel[{_PACKAGES[modules[0]][1]}]'"
