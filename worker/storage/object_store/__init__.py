"""Object store, a folder, S3, Google or Azure: files of data sets, and large arrays behind the cache with an index.

May import `base`, `records`, `observability` and `storage.records`. Start with `data_files` and `store`.
"""
