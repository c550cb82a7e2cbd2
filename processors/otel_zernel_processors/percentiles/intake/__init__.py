"""Reads the values of points and histograms from batches."""
