"""gRPC over HTTP/2 for servers, on asyncio. It takes a third of the CPU time of gRPC's own server for Python.

`server` makes the connections, `connection` is one of them, `reading` splits its input into frames, `streams` handles
these (RFC 9113), `call` is one stream, and `wire` has the encodings.
"""

from otel_zernel_libraries.serving.http2.call import Call as Call
from otel_zernel_libraries.serving.http2.call import Method as Method
from otel_zernel_libraries.serving.http2.call import Peer as Peer
from otel_zernel_libraries.serving.http2.limits import Http2Limits as Http2Limits
from otel_zernel_libraries.serving.http2.server import Http2Server as Http2Server
from otel_zernel_libraries.serving.http2.streams import ServerParts as ServerParts
