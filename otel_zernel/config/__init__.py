"""Configuration: load (read, merge, expand), schema (validate), show (print)."""
