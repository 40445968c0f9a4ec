"""Redis clients, with retries and a circuit breaker, for threads and event loops.

May import `base`. Start with `clients`; requests for single draws use `loop_commands`.
"""
