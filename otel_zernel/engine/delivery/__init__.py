"""The delivery of batches to one exporter."""

from otel_zernel.engine.delivery.delivery import Delivery as Delivery
