"""The master's side of a fleet of workers: takes their heartbeats, and serves their state."""

from otel_zernel_receivers.heartbeat.receiver import HeartbeatReceiver as HeartbeatReceiver
