"""Object store behind the array cache: a folder, S3, Google or Azure, with an index in the queue's Redis.

May import `base`, `records` and `observability`. Start with `store`.
"""
