"""The process on its machine: threads, files, the memory limit and Python's garbage collector."""
