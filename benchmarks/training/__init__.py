"""Training loops that record their own true phases, and runs of them under the receiver."""
