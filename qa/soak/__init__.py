"""The service under ten times its usual load for half an hour: memory, descriptors and latency stay what they are."""
