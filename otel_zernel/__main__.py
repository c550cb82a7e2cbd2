"""`python -m otel_zernel` is the same command as `otel-zernel`."""

import sys

from otel_zernel.cli import main

sys.exit(main())
