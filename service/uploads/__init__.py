"""Uploads: bodies are written to disk under a limit, then parsed in separate processes.

May import `encoding`. Start with `reading` (one upload), then `registry` (the formats, each of which makes columns) and
`sandbox` (the reader processes). What the columns mean is decided in `glle_engine.tables`.
"""
