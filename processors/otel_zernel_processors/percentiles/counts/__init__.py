"""The counts of each series: since its start, over a window, and its exemplars."""
