"""Runs commands as tasks on this machine, on Kubernetes or on Slurm."""
