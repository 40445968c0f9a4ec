"""The service on Redis as others run it: behind sentinels, as a cluster, managed."""
