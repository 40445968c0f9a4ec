"""Foundations: settings, problems (failures as values), versions of stored data, files, times.

Imports no other package of `worker`. Start with `settings` and `problems`.
"""
