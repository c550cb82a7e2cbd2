"""Reads the files of Linux under /proc and /sys."""
