"""HTTP of the client: calls, retries, large bodies, errors, and a blocking and an asynchronous session.

May import `glle.types`, `glle.progress`, and `parameters` and `texts` of `glle_engine.base`.
Start with `calls`, then `session`.
"""
