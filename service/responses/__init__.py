"""Responses with the results of draws and analyses, complete or partial.

May import `submission`, `encoding` and `schemas`. Start with `draws`.
"""
