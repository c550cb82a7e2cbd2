"""The schedule of a target, its requests, and its problems."""
