"""Object store with the files of all records, in a folder, S3, Google or Azure.

May import `base`, `records` and `observability`. Start with `files`.
"""
