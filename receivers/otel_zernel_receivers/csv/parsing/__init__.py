"""Parses blocks of lines into rows: by pyarrow, or line by line."""
