"""Backups: everything that is the users', in one file, and back."""
