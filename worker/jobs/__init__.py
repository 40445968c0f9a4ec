"""Jobs: their records, the queue of their tasks, recovery, shards, and notifications of changes.

May import `base`, `records`, `observability`, `connections` and `storage`. Start with `store`, then `queue`.
"""
