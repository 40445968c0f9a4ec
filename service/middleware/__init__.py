"""Middleware: access, rate limits, CORS, HEAD, metrics, slow clients, the cache of immutable answers.

May import `encoding` and `schemas`. Start with `observe`, the outermost.
"""
