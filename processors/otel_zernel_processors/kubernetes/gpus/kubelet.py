"""The kubelet's answers: read again and again, and kept while it restarts."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError as ProtobufError

from otel_zernel.errors import NoAnswer
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel.text import printable
from otel_zernel_processors.kubernetes.config import PodResourcesConfig
from otel_zernel_processors.kubernetes.gpus.holders import GpuHolder, holders
from otel_zernel_processors.kubernetes.gpus.messages import LIST

if TYPE_CHECKING:  # importing gRPC takes 27 MB, and most configurations need no GPUs
    from grpc.aio import Channel

_LONGEST_ANSWER: Final = 16 << 20
"""Bytes. gRPC's default of 4 MiB is too short for nodes with 60,000 devices, whose list has 5.7 MB."""
_TIMEOUT: Final = 10.0
"""Seconds for one answer. dcgm-exporter waits as long."""


class Kubelet:
    """The pod-resources API of this node."""

    def __init__(self, config: PodResourcesConfig) -> None:
        self._config = config
        self._channel: Channel | None = None

    async def close(self) -> None:
        if self._channel:
            await self._channel.close(None)
            self._channel = None

    async def holders(self) -> tuple[GpuHolder, ...]:
        """All holders of GPUs. Raises `NoAnswer`."""
        import grpc

        call = self._connected().unary_unary(LIST, request_serializer=bytes, response_deserializer=bytes)
        try:
            answer = await call(b"", timeout=_TIMEOUT)
        except grpc.RpcError as error:
            raise NoAnswer(self._reason(error.code().name, error.details() or "")) from error
        config = self._config
        parse = partial(holders, answer, partial(_fits, config.resources), partial(_fits, config.drivers))
        try:
            return await run_in_thread(parse)
        except ProtobufError as error:
            raise NoAnswer(f"{config.socket} gives an answer that is not one of the kubelet") from error

    def _connected(self) -> "Channel":
        """An open channel connects again after a restart of the kubelet."""
        import grpc

        if self._channel is None:
            options = [
                ("grpc.max_receive_message_length", _LONGEST_ANSWER),
                ("grpc.max_reconnect_backoff_ms", 5000),
                # The name of a socket is no authority.
                ("grpc.default_authority", "localhost"),
            ]
            self._channel = grpc.aio.insecure_channel(f"unix://{self._config.socket}", options)
        return self._channel

    def _reason(self, code: str, details: str) -> str:
        advice = {
            "UNAVAILABLE": "; mount the folder of the socket, and let the collector run as root",
            "UNIMPLEMENTED": "; Kubernetes 1.28 or newer is needed",
        }.get(code, "")
        return f"{self._config.socket} gives no answer: {code} {printable(details)}{advice}"


def _fits(patterns: Iterable[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
