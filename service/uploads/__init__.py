"""Uploads: bodies spooled to disk under a limit, then parsed in separate processes.

May import `encoding`. Start with `reading` (one upload), then `spool`, `packing` (compression, forms), `registry` (the
formats), `column_table` (from columns to a table), `column_roles` and `sandbox` (the reader processes).
"""
