"""Drills with real processes: Redis with TLS, a load balancer and few permissions."""
