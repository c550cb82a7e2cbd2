"""A store of metrics and spans in SQLite or PostgreSQL: schema, writing, and reading of what was written."""
