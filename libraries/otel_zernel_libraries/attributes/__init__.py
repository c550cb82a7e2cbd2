"""Actions on attributes, as processors configure them, and attributes as values of Python."""
