"""Middleware: access policy, authentication, rate limit, CORS, HEAD, request metrics, slow clients, answer cache.

May import `encoding` and `schemas`. Start with `observe`, the outermost.
"""
