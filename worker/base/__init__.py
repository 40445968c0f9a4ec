"""Foundations: settings, problems (the errors that clients get, RFC 9457), versions of stored data, files, times.

Imports no other package of `worker`. Start with `settings` and `problems`.
"""
