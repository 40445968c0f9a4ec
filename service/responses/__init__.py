"""Responses: results of draws and analyses, partial results, server-sent events, conditional requests.

May import `submission`, `encoding` and `schemas`. Start with `draws`.
"""
