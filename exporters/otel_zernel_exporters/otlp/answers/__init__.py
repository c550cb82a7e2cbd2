"""The answers of servers: success, partial success, failure, and how long to wait."""
