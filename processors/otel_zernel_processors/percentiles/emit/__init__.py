"""Makes summaries and exponential histograms of the counts."""
