"""Training programs on unmodified frameworks, which run in the Python of `.frameworks`."""
