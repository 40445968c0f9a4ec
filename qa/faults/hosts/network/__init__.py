"""Machines as network namespaces, their load balancer and their CPU quotas."""
