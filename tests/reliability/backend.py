"""A backend for tests: an OTLP/HTTP server that counts each value it gets, and fails on purpose."""

import random
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from tests.otlp import metrics_in


class UnreliableBackend:
    """Refuses a share of the requests with 503, and drops the connections of others before or after it stored them."""

    def __init__(self, seed: int, refuses: float = 0.2, resets: float = 0.05) -> None:
        self.delivered: Counter[int] = Counter()
        """How often each value arrived."""
        self._random = random.Random(seed)
        self._limits = (refuses, refuses + resets / 2, refuses + resets)
        self._lock = threading.Lock()
        backend = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                backend._answer(self, body)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """Quiet: killed clients reset their connections."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        refused, unread, unanswered = self._limits
        with self._lock:
            chance = self._random.random()
        if refused <= chance < unread:
            handler.close_connection = True
            return
        if chance >= refused:
            values = values_in(body)
            with self._lock:
                self.delivered.update(values)
        if unread <= chance < unanswered:
            handler.close_connection = True
            return
        handler.send_response(503 if chance < refused else 200)
        handler.send_header("Content-Type", "application/x-protobuf")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def values_in(encoded: bytes) -> list[int]:
    """The values of all gauge points of an encoded `MetricsData`."""
    return [
        int(point.as_double)
        for metric in metrics_in(MetricsData.FromString(encoded))
        for point in metric.gauge.data_points
    ]
