"""Builds the container image without a Docker engine, from Debian's archive and PyPI alone."""
