"""The metrics of the exporter about itself."""

from otel_zernel.component.declaration import by_name, own

SENT = own("zernel.heartbeat.sent", "{heartbeat}", "Heartbeats that the master has answered.", ("rpc.method",))
SKIPPED = own(
    "zernel.heartbeat.skipped",
    "{heartbeat}",
    "Heartbeats that were due while the master did not answer. Only the latest state is sent.",
)
FAILURES = own(
    "zernel.heartbeat.failures",
    "{failure}",
    "Connections to the master that failed or ended, and refusals.",
    ("error.type",),
)

METRICS = by_name(SENT, SKIPPED, FAILURES)
