"""The explorer, a web page without a build step, and the routes that serve its files.

May import `responses` and `encoding`. Start with `README.md`.
"""
