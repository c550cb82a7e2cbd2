"""Histograms and other amounts: plus, minus and quantiles at any bounds, and temporality."""
