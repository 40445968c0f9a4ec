"""Drills with real processes: secrets in logs and answers, and Redis with TLS, a load balancer and few permissions."""
