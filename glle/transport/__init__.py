"""HTTP of the client: calls, retries, blocking and awaited drivers, errors.

Start with `session`.
"""
