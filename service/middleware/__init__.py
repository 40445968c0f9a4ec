"""Middleware: requests, access policy, limits on requests, slow clients, answer cache.

May import `encoding` and `schemas`. Start with `requests`.
"""
