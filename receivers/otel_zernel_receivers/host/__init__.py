"""Watches the machine: CPUs, memory, disks, networks, pressure and processes."""

from otel_zernel_receivers.host.receiver import HostReceiver as HostReceiver
