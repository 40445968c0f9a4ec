"""Lanczos iterations of several lanes at once, and their Ritz pairs.

May import `symbolic`, `numeric` and `linalg`. Start with `lanczos`.
"""
