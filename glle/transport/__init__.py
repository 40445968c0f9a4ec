"""HTTP of the client: calls, retries, sinks for large bodies, errors, a session with two drivers.

May import `glle.types` and `glle.progress`. Start with `calls`, then `session`.
"""
