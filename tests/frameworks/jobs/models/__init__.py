"""Small models and synthetic data."""
