"""Responses: results of draws and analyses, complete or partial, server-sent events.

May import `submission`, `encoding` and `schemas`. Start with `draws`.
"""
