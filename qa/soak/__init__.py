"""Soak test: memory, descriptors and latency stay flat under ten times the usual load for half an hour."""
