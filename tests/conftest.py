"""The number of examples in property tests: 60 in `make test`, 5,000 in `make soak`."""

import os

from hypothesis import HealthCheck, settings

# Hypothesis would fail a test for whose examples a busy machine needs long.
settings.register_profile("default", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "soak", max_examples=5_000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
