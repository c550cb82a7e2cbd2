"""The other end of a connection."""

import asyncio


class Peer:
    """A client, from its connection to its end. It outlives the connection for those who remember the client."""

    __slots__ = ("address", "certificate", "closed")

    def __init__(self, address: str = "", certificate: str = "") -> None:
        self.address = address
        """The IP address. Empty for a Unix socket."""
        self.certificate = certificate
        """The names in the client's verified certificate. Empty without one."""
        self.closed = False

    def meet(self, transport: asyncio.BaseTransport) -> None:
        """Reads address and certificate after the handshake."""
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.address = str(name[0])
        if certificate := transport.get_extra_info("peercert"):  # empty if it was not verified
            self.certificate = repr((certificate.get("subject"), certificate.get("subjectAltName")))
