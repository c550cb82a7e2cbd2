"""The metrics of the exporter about itself."""

from otel_zernel.component.declaration import by_name, own

STORED = own("zernel.sql.stored", "{item}", "Points and spans that are stored.")
REPEATED = own(
    "zernel.sql.repeated",
    "{item}",
    "Points and spans that were stored before with the same value, for example after a retry.",
)

METRICS = by_name(STORED, REPEATED)
