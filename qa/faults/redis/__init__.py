"""The service on other Redis topologies: a master with replicas, managed servers."""
