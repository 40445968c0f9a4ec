"""Redis clients: one server, sentinels or a cluster, with retries and a circuit breaker, for threads and event loops.

May import `base`. Start with `clients`; a request's way to Redis begins in `event_loop`.
"""
