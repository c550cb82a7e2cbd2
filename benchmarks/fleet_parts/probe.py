"""A worker that speaks HTTP/2 on a plain socket, so that its own time hardly counts: PORT SECONDS stream|call.

Prints the times from sending a heartbeat to its answer, in ms.
"""

import json
import socket
import sys
import time

from benchmarks.fleet_parts.workers import heartbeat, quantile
from otel_zernel_libraries.cluster.messages import SEND_HEARTBEAT, STREAM_HEARTBEATS
from otel_zernel_libraries.serving.http2.wire import (
    ACK,
    DATA,
    END_HEADERS,
    END_STREAM,
    FRAME_HEAD,
    HEADERS,
    PREFACE,
    SETTINGS,
    encode_headers,
    frame,
    message_of,
    read_frame_head,
    settings,
)

_INTERVAL = 0.01
"""Seconds between two heartbeats."""


class RawWorker:
    """A connection with one stream for all heartbeats, or one for each."""

    def __init__(self, port: int, method: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._streams = method == "stream"
        path = STREAM_HEARTBEATS if self._streams else SEND_HEARTBEAT
        fields = {":method": "POST", ":scheme": "http", ":path": path, "te": "trailers"}
        self._headers = encode_headers([*fields.items(), ("content-type", "application/grpc")])
        self._stream = -1
        self._read = b""
        self._socket.sendall(PREFACE + settings({}) + frame(SETTINGS, ACK, 0))

    def beat(self, message: bytes) -> None:
        """Sends a heartbeat and waits for its answer."""
        opening = b""
        if self._stream < 0 or not self._streams:
            self._stream += 2
            opening = frame(HEADERS, END_HEADERS, self._stream, self._headers)
        flags = 0 if self._streams else END_STREAM
        self._socket.sendall(opening + frame(DATA, flags, self._stream, message_of(message)))
        while not self._is_answered():
            self._read += self._socket.recv(65536)

    def _is_answered(self) -> bool:
        """Whether the answer is among the frames that were read."""
        while len(self._read) >= FRAME_HEAD:
            length, kind, flags, stream = read_frame_head(self._read, 0)
            if len(self._read) < FRAME_HEAD + length:
                return False
            self._read = self._read[FRAME_HEAD + length :]
            is_last = kind == DATA if self._streams else kind == HEADERS and bool(flags & END_STREAM)
            if is_last and stream == self._stream:
                return True
        return False


def main(port: str, seconds: str, method: str) -> None:
    worker, times = RawWorker(int(port), method), []
    worker.beat(heartbeat("raw"))
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        message, start = heartbeat("raw"), time.perf_counter()
        worker.beat(message)
        times.append((time.perf_counter() - start) * 1e3)
        time.sleep(_INTERVAL)
    times.sort()
    print(json.dumps({"count": len(times), "p50": quantile(times, 0.5), "p99": quantile(times, 0.99)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
