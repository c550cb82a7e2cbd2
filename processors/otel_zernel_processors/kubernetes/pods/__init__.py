"""The pods: their names, labels and jobs, and where they come from."""
