"""Drills with real processes: secrets, and Redis with TLS, a balancer and users with few rights."""
