"""The live state, its stream and its page."""
