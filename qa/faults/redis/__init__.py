"""The service on other Redis topologies: Sentinel, managed servers."""
