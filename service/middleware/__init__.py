"""Middleware: requests, access policy, limits on requests, answer cache.

May import `encoding` and `schemas`. Start with `requests`.
"""
