"""Jobs: their records, the queue of their tasks, the repair of lost tasks, requests for draws, and notifications.

May import `base`, `records`, `observability`, `connections` and `storage`. Start with `store`, then `queue`.
"""
