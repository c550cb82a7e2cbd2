"""The parameters of requests: reading, checking, and their description."""
