"""Uploads: bodies spooled to disk under a limit, then parsed in separate processes.

May import `encoding`. Start with `spool`, then `registry` (the formats) and `sandbox` (the reader processes).
"""
