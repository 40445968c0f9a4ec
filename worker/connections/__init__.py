"""Redis clients, with retries and a circuit breaker, for threads and event loops.

May import `base`. Start with `clients`. Event loops send the commands of requests for single draws by `loop_commands`.
"""
