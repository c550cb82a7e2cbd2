"""The metrics of the receiver about itself. Those of programs have the names in the configuration."""

from otel_zernel.component.declaration import by_name, own

RESTARTS = own(
    "zernel.bcc.restarts",
    "{restart}",
    "Restarts of the process with the programs, by reason: died, silent, garbage.",
    ("reason",),
    "from the first restart on",
)

METRICS = by_name(RESTARTS)
