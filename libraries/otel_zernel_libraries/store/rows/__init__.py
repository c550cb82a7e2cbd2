"""OTLP metrics and spans as rows of the store's tables, the same for both databases."""
