"""Drills: upgrades between versions, and backups put back, with real processes."""
