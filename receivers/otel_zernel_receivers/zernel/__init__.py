"""Reads the feed of a GPU workload daemon, or of the websocket exporter."""

from otel_zernel_receivers.zernel.receiver import ZernelReceiver as ZernelReceiver
