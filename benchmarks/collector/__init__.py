"""Whole collectors, as processes of their own."""
