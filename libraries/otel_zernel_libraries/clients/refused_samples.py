"""Words of Prometheus and of servers like it about samples that they refuse, by OTLP and by remote write."""

import re
from typing import Final

_NO_NATIVE: Final = re.compile(r"native histogram.{0,40}(disabled|not enabled|not supported)", re.IGNORECASE)


def refuses_native_histograms(status: int, message: str) -> bool:
    """Whether the server takes no native histograms. Prometheus answers 500 then, and stores nothing of a request."""
    return status >= 300 and _NO_NATIVE.search(message) is not None
