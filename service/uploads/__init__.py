"""Uploads: bodies spooled to disk under a limit, then parsed in separate processes.

May import `encoding`. Start with `reading` (one upload), then `registry` (the formats), `column_table` (from columns to
a table) and `sandbox` (the reader processes). The roles of columns are those of `glle_engine.base.columns`.
"""
