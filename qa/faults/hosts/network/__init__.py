"""Machines as network namespaces, their balancer and their shares of the processor."""
