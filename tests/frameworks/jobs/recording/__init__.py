"""The truth of a program, and how it is recorded."""
