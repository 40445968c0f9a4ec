"""Redis clients, with retries and a circuit breaker, for threads and event loops.

May import `base`. Start with `clients`; single draws go by `loop_commands`.
"""
