"""The state of all workers, without any I/O."""
