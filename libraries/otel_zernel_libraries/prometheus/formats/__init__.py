"""The formats of a page: the choice of one for a scraper, and the writers."""

from otel_zernel_libraries.prometheus.formats.negotiation import Format as Format
from otel_zernel_libraries.prometheus.formats.negotiation import accepts_gzip as accepts_gzip
from otel_zernel_libraries.prometheus.formats.negotiation import negotiate as negotiate
