"""gRPC over HTTP/2 for servers, on asyncio. It takes a third of the CPU time of gRPC's own server for Python.

`server` makes the connections, `connection` is one of them, `reading` splits its input into frames, `streams` handles
these (RFC 9113), `call` is one stream, and `wire` has the encodings.
"""

from otel_zernel_libraries.serving.http2.call import Call, Method, Peer
from otel_zernel_libraries.serving.http2.limits import Http2Limits
from otel_zernel_libraries.serving.http2.server import Http2Server
from otel_zernel_libraries.serving.http2.streams import ServerParts

__all__ = ["Call", "Http2Limits", "Http2Server", "Method", "Peer", "ServerParts"]
