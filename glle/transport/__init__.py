"""HTTP of the client: calls as generators, retries, sinks for large bodies, errors, two drivers.

May import `glle.types` and `glle.progress`. Start with `calls`, then `session`.
"""
