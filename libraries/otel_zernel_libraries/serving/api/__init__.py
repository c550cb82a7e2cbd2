"""The contract of the collector's HTTP API: components contribute routes, and one extension serves them all."""
