"""Redis clients: one server, sentinels or a cluster, with retries and a circuit breaker.

May import `base`. Start with `clients`.
"""
