"""The formats of a page: the choice of one for a scraper, and the writers."""

from otel_zernel_libraries.prometheus.formats.negotiation import Format, accepts_gzip, negotiate

__all__ = ["Format", "accepts_gzip", "negotiate"]
