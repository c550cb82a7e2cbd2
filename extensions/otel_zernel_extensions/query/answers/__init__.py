"""Answers: JSON, CSV and Arrow, compression, validators of caches, and problems."""
