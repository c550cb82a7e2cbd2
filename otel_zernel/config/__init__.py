"""From files to a validated configuration: load (expand, merge), schema (validate), show (print-config)."""
