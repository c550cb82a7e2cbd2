"""Credentials of slurmrestd: a JSON Web Token from a file."""

import base64
import json
from pathlib import Path
from typing import Final

from otel_zernel.errors import CannotStart
from otel_zernel_extensions.tasks.engines.slurm.config import SlurmConfig
from otel_zernel_libraries.clients.api_access import Access

_LONGEST_FILE: Final = 1 << 20


def read(config: SlurmConfig, setting: str) -> Access:
    """The address, and the headers with the token and its user. Raises `CannotStart`."""
    socket = config.endpoint.removeprefix("unix:") if config.endpoint.startswith("unix:") else None
    headers = _headers(config, setting)
    authority = _read(config.ca_file, f"{setting}::ca_file") if config.ca_file else None
    return Access("http://localhost" if socket else config.endpoint, headers, socket=socket, ca=authority)


def _headers(config: SlurmConfig, setting: str) -> dict[str, str]:
    if not config.token_file:
        return {"x-slurm-user-name": config.user} if config.user else {}
    key = f"{setting}::token_file"
    # `scontrol token` prints SLURM_JWT=...
    token = _read(config.token_file, key).decode("ascii", "replace").strip().removeprefix("SLURM_JWT=")
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise CannotStart(f"{key}: {config.token_file} has no token; write the output of scontrol token there")
    user = config.user or _user_of(token)
    if not user:
        raise CannotStart(f"{setting}::user: the token in {config.token_file} names no user; set user")
    return {"x-slurm-user-token": token, "x-slurm-user-name": user}


def _user_of(token: str) -> str:
    """The claim `sun` of the token, unchecked: slurmrestd checks it. Slurm 22.05 wants it in a header, too."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        user = str(claims.get("sun") or claims.get("username") or "")
    except (ValueError, IndexError, AttributeError, RecursionError):
        return ""
    return user if user.isascii() and user.isprintable() else ""


def _read(file: str, key: str) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            return opened.read(_LONGEST_FILE)
    except OSError as error:
        raise CannotStart(f"{key}: cannot read {file}: {error.strerror}") from error
