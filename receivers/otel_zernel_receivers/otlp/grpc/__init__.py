"""OTLP over gRPC: the methods of the server."""
