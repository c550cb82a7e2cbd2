"""The store in SQLite: one file, for one machine."""
