"""The summary of a report in the job's own run: Weights & Biases, MLflow or TensorBoard."""

from otel_zernel_commands.why.tracking.sending import sent as sent
