"""Swagger UI, without any other server."""
