"""The store in PostgreSQL, for many collectors and readers."""
