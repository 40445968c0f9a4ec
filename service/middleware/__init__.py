"""ASGI middleware of every request: access policy, limits, fair scheduling, and the cache of responses.

May import `encoding` and `schemas`. Start with `requests`.
"""
