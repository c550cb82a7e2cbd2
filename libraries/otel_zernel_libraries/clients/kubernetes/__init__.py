"""Kubernetes' API for components that ask it: credentials, lists and watches."""
