"""Uploads: a body is written to disk under a limit, then parsed, in a separate process unless it is small and simple.

May import `encoding`. Start with `reading` (one upload), then `registry` (the formats, each of which makes columns) and
`sandbox` (the reader processes). What the columns mean is decided in `glle_engine.tables`.
"""
