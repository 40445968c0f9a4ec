"""Storage of data sets, posteriors and API keys: records and an array cache in Redis, files, the object store.

May import `base`, `records`, `observability` and `connections`. Start with `datasets` and `array_cache`.
"""
