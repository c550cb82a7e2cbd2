"""The pods of GPUs, from the kubelet's pod-resources API."""
