"""Frames, pictures and notebook widgets of results that have one row for each point.

Imports `glle_engine.base` alone. Read `points` first, then `plotting`; `widget` is for notebooks.
"""
