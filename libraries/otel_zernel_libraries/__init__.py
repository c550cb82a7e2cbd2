"""What components share and the core does not need."""
