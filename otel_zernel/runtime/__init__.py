"""The process on its machine: threads, files, the memory limit, Python's garbage collector; the job of a process."""
