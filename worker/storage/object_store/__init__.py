"""The store of all files that records name: a folder, or a bucket of S3, Google or Azure.

May import `base`, `records` and `observability`. Start with `files`.
"""
