"""gRPC over HTTP/2 for servers, on asyncio. It takes a third of the CPU time of gRPC's own server for Python.

`server` listens, `connection` is a client's connection, `streams` handles its frames (RFC 9113), `call` is one stream,
`wire` has the encodings, `parts` is shared by all connections, and `peer` is the client.
"""

from otel_zernel_libraries.serving.http2.call import Call, Method
from otel_zernel_libraries.serving.http2.limits import Http2Limits
from otel_zernel_libraries.serving.http2.parts import ServerParts
from otel_zernel_libraries.serving.http2.peer import Peer
from otel_zernel_libraries.serving.http2.server import Http2Server, serve_http2

__all__ = ["Call", "Http2Limits", "Http2Server", "Method", "Peer", "ServerParts", "serve_http2"]
