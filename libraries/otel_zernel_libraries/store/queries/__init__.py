"""Questions to a store: pages of points, aggregates over time, and what the store contains."""
