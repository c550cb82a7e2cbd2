"""The limits of an HTTP server, so that no client can exhaust the collector's memory, time or file descriptors."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds for every connection, checked before anything is parsed. Times are in s, sizes in bytes."""

    head_size: int = 1 << 16
    """Request line and headers together. A longer head is answered with 431. nginx allows 32 KiB, Go 1 MiB."""
    headers: int = 128
    """Fields of a head. A longer head is answered with 431: 64 KiB can hold 16,000 fields, which take 40 ms to parse.
    Apache allows 100."""
    head_time: float = 10.0
    """For the TLS handshake, and from the first byte of a request to the end of its headers."""
    body_time: float = 60.0
    """For the body of a request, while the application reads it."""
    idle_time: float = 75.0
    """Between two requests. Longer than the usual scrape interval of 60 s, so that scrapers keep their connection."""
    keep_alive: bool = True
    """Whether a connection may have several requests."""
    write_time: float = 30.0
    """In which a client reads at least one buffer (64 KiB) of its answer."""
    linger_time: float = 1.0
    """After an early answer: the rest of the request is read and discarded, so that the client sees the answer."""
    linger_size: int = 1 << 24
    """The most bytes that are discarded in this time."""
    connections: int = 1000
    """Open connections. Beyond, the one that is idle longest is closed; if none is idle, the new one gets 503.

    Also limited to a quarter of the process's open files (`RLIMIT_NOFILE`).
    """
    pipelined: int = 16
    """Requests that wait on one connection for their answer. A client that sends more is disconnected."""
    message_size: int = 0
    """The largest message of a WebSocket that a client may send. 0 for a server without WebSockets."""
    ping_interval: float = 20.0
    """Between two pings of a WebSocket. Proxies end connections without traffic, often after 60 s."""
    ping_timeout: float = 20.0
    """For the answer to a ping. A client that sends one frame for longer than both times is disconnected."""
    send_buffer: int = 0
    """Bytes that the kernel holds for a client that reads slowly. The kernel takes twice as many. 0 leaves the choice
    to the kernel: up to 4 MiB for each client."""
    write_buffer: int = 0
    """Bytes that this process holds for a WebSocket client that reads slowly, besides one message. 0 for 64 KiB."""
