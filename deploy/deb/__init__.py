"""The package for Debian and Ubuntu."""
