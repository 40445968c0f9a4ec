"""Object store, a folder, S3, Google or Azure: files of data sets, and large results behind the cache with an index.

May import `base`, `records`, `observability` and `storage.records`. Start with `files` and `results`.
"""
