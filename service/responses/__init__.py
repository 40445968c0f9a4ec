"""Responses: results of draws and analyses, partial results, server-sent events.

May import `submission`, `encoding` and `schemas`. Start with `draws`.
"""
