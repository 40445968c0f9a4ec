"""Benchmarks of the service: HTTP, queue and cache over the engine."""
