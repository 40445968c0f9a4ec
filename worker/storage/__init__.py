"""Storage of data sets and posteriors: files on disk, the array cache in Redis, the object store behind it.

May import `base`, `records`, `tenancy`, `observability` and `connections`. Start with `datasets` and `array_cache`.
"""
