"""The query extension: the points of a store over HTTP."""

from otel_zernel_extensions.query.extension import QueryExtension as QueryExtension
