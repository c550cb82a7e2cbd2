"""The states of a task, the events that change them, and their storage."""
