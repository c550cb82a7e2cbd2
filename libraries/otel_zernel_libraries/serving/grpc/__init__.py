"""Services that every server of gRPC has: health and reflection."""
