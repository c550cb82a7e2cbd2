"""`python -m otel_zernel`: the same as `otel-zernel`."""

import sys

from otel_zernel.cli import main

sys.exit(main())
