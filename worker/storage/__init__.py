"""Stores of data sets, posteriors, results and API keys: records in Redis, and files in a folder or an object store.

May import `base`, `records`, `observability` and `connections`. Start with `records` and `file_records`.
"""
