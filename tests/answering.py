"""An HTTP server in a thread, for clients in other processes."""

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@contextmanager
def answering(
    answer: Callable[[str, bytes], tuple[int, bytes]],
    *,
    content_type: str = "application/x-protobuf",
    address: tuple[str, int] = ("127.0.0.1", 0),
    security: ssl.SSLContext | None = None,
) -> Iterator[int]:
    """The port. `answer` gets path and body of a GET or POST, and gives status and body."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, body = answer(self.path, self.rfile.read(int(self.headers.get("content-length", 0))))
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815  # the name of the base class

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    with ThreadingHTTPServer(address, Handler) as server:
        if security:
            server.socket = security.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
