"""HTTP of the client: calls, retries, sinks for large bodies, errors, a session with two drivers.

May import `glle.types`, `glle.progress`, and `parameters` and `texts` of `glle_engine.base`.
Start with `calls`, then `session`.
"""
