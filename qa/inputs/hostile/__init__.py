"""Hostile bodies: each must get a problem in bounded time and memory, and leave no files."""
