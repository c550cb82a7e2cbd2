"""Runs BPF programs of one's own, written in C, and turns their tables into metrics."""

from otel_zernel_receivers.bcc.receiver import BccReceiver as BccReceiver
