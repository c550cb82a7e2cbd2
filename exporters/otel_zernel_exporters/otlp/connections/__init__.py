"""Connections to servers: channels of gRPC, clients of HTTP, TLS, proxies, and the causes of failures."""
