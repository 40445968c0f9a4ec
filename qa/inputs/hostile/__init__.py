"""Bodies made to do harm: each is refused by a problem, in bounded time and memory, and leaves nothing behind."""
