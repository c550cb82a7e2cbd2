"""The live page: a document, a style and the modules of its script. It asks for nothing but the stream beside it."""

from otel_zernel_exporters.live.page.files import page_routes as page_routes
from otel_zernel_exporters.live.page.saved import saved_page as saved_page
