"""Middleware: requests, access policy, rate limit, CORS, slow clients, answer cache.

May import `encoding` and `schemas`. Start with `requests`.
"""
