"""The pod and the container of a process, from /proc."""
