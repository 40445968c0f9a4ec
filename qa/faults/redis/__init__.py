"""The service on other Redis topologies: Sentinel, Cluster, managed servers."""
