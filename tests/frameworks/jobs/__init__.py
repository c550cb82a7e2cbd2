"""Training programs on unmodified frameworks. They run in the Python of `.frameworks`, and import nothing of this project
but the recorder of their own truth."""
