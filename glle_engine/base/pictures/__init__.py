"""Results with a row for each point, as tables, pictures and widgets.

Imports `glle_engine.base` alone. Read `points` first, then `plotting`; `widget` is for notebooks.
"""
