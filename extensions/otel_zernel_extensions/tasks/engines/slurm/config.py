"""The configuration of the engine of Slurm."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field

from otel_zernel.types import PositiveDuration, ReadableFile, Section

_OLDEST: Final = 38
"""slurmrestd of Slurm 22.05, the oldest that was tried."""


def _endpoint(text: str) -> str:
    if not text.startswith(("http://", "https://", "unix:/")) or text.endswith("://"):
        raise ValueError(
            f"{text!r} is not an address of slurmrestd; write http://host:6820 or unix:/run/slurmrestd.sock"
        )
    return text.rstrip("/")


def _version(text: str) -> str:
    if int(text.rpartition(".")[2]) < _OLDEST:
        raise ValueError(f"{text} is too old; use v0.0.{_OLDEST} or newer")
    return text


def _absolute(text: str) -> str:
    if not text.startswith("/") or "%" in text or "\n" in text or "\0" in text:
        raise ValueError(f"{text!r} must be an absolute path without % and line breaks")
    return text.rstrip("/")


class SlurmConfig(Section):
    """The cluster, and the jobs that run the tasks."""

    endpoint: Annotated[str, AfterValidator(_endpoint)]
    """The address of slurmrestd: `http://host:6820` or `unix:/run/slurmrestd.sock`."""
    api_version: Annotated[str, Field(pattern=r"^v0\.0\.\d{2,3}$"), AfterValidator(_version)] = "v0.0.40"
    """The version in the paths of slurmrestd. `v0.0.40` is in Slurm 23.11 to 25.05."""
    token_file: Annotated[str | None, ReadableFile()] = None
    """A file with a JSON Web Token, as `scontrol token` prints it. It is read again when it changes."""
    user: str | None = None
    """The user of Slurm. By default the token's."""
    ca_file: Annotated[str | None, ReadableFile()] = None
    """PEM file of the authorities that sign the certificate of slurmrestd. By default those of the system."""
    output_directory: Annotated[str, AfterValidator(_absolute)]
    """A directory on the cluster's shared disk for outputs and results. The jobs' user must be able to write there."""
    instance: Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")] = "default"
    """A part of the jobs' names, by which this collector finds them. Give each collector of a user its own."""
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    job: Mapping[str, Any] = {}
    """Further properties of a job, as in the API's job description: `constraints: h100`."""
    request_timeout: PositiveDuration = 10.0
    """Seconds for one request to slurmrestd."""
    list_interval: PositiveDuration = 5.0
    """Seconds for which one list of jobs serves all tasks: slurmrestd loads the controller at each request."""
