"""Object store behind the array cache: any fsspec URL, with an index in the queue's Redis.

May import `base`, `records` and `observability`. Start with `store`.
"""
