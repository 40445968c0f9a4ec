"""Backups: all user data in one file, and their restoration.

May import what `worker.operations` may. Start with `archive`, then `dump` and `restore`.
"""
